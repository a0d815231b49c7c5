// How values of single types are taken apart: tensors, numbers, strings, and
// the small types of c10.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/TensorOptions.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>

#include <complex>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <temper/detail/sink.h>

namespace temper::detail {

template <>
struct Codec<at::Tensor> : BothWays {
  static void flatten(const at::Tensor& value, Sink& sink) {
    sink.tensor(value);
  }
  static void refill(at::Tensor& value, Source& source) {
    value = source.tensor();
  }
};

/// The base of codecs of types without tensors.
struct NoTensors : BothWays {
  template <class T>
  static void refill(T&, Source&) {}
};

template <class T>
requires(std::is_arithmetic_v<T> || std::is_enum_v<T>) struct Codec<T>
    : NoTensors {
  static void flatten(const T& value, Sink& sink) {
    if constexpr (std::is_same_v<T, long double>) {
      // Its last bytes are padding.
      const auto high = static_cast<double>(value);
      sink.bits(high);
      sink.bits(static_cast<double>(value - high));
    } else {
      sink.bits(value);
    }
  }
};

template <class T>
struct Codec<c10::complex<T>> : NoTensors {
  static void flatten(const c10::complex<T>& value, Sink& sink) {
    sink.bits(value.real());
    sink.bits(value.imag());
  }
};

template <class T>
struct Codec<std::complex<T>> : NoTensors {
  static void flatten(const std::complex<T>& value, Sink& sink) {
    sink.bits(value.real());
    sink.bits(value.imag());
  }
};

template <>
struct Codec<c10::Half> : NoTensors {
  static void flatten(const c10::Half& value, Sink& sink) {
    sink.bits(value.x);
  }
};

template <>
struct Codec<c10::BFloat16> : NoTensors {
  static void flatten(const c10::BFloat16& value, Sink& sink) {
    sink.bits(value.x);
  }
};

template <>
struct Codec<c10::Device> : NoTensors {
  static void flatten(const c10::Device& value, Sink& sink) {
    sink.bits(value.type());
    sink.bits(value.index());
  }
};

template <>
struct Codec<caffe2::TypeMeta> : NoTensors {
  static void flatten(const caffe2::TypeMeta& value, Sink& sink) {
    sink.text(value.name());
  }
};

template <>
struct Codec<c10::Scalar> : NoTensors {
  TEMPER_API static void flatten(const c10::Scalar& value, Sink& sink);
};

template <>
struct Codec<c10::TensorOptions> : NoTensors {
  TEMPER_API static void flatten(const c10::TensorOptions& value, Sink& sink);
};

template <>
struct Codec<c10::IValue> : BothWays {
  TEMPER_API static void flatten(const c10::IValue& value, Sink& sink);
  /// Lists and dicts are references in an IValue, so they are made anew.
  TEMPER_API static void refill(c10::IValue& value, Source& source);
};

/// Two generators with equal states are still two.
template <>
struct Codec<at::Generator> : NoTensors {
  static void flatten(const at::Generator&, Sink& sink) {
    sink.reject("a torch::Generator");
  }
};

template <>
struct Codec<std::string> : NoTensors {
  static void flatten(const std::string& value, Sink& sink) {
    sink.text(value);
  }
};

template <>
struct Codec<std::string_view> : NoTensors {
  static void flatten(const std::string_view& value, Sink& sink) {
    sink.text(value);
  }
};

template <>
struct Codec<const char*> : NoTensors {
  static void flatten(const char* const& value, Sink& sink) {
    sink.bits(value != nullptr);
    sink.text(value == nullptr ? "" : value);
  }
};

} // namespace temper::detail
