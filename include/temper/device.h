// What can be compiled for a device.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include <temper/export.h>

namespace temper {

/// The answer of `is_compile_supported`.
struct DeviceSupport {
  /// True iff calls on tensors of the device can be compiled.
  bool supported = false;
  /// Why not, or which backends there are.
  std::string reason;
  /// `if (temper::is_compile_supported(device))`.
  explicit operator bool() const noexcept {
    return supported;
  }
};

/// Whether calls on tensors of `device` can be compiled with `backend`. Every
/// backend so far can, on any device but `meta`, which has no values.
/// Throws `temper::Error` if there is no such backend.
TEMPER_API DeviceSupport
is_compile_supported(c10::Device device, const std::string& backend = "aten");

} // namespace temper
