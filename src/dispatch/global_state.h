// The process and thread state that a call's result depends on.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace temper::dispatch {

/// Grad, inference and autocast state, default dtype and device, determinism,
/// SDP and precision flags, the default generator's identity, in a form that
/// compares in nanoseconds. The number of threads is not part of it: programs
/// obey the current one.
struct GlobalState {
  std::array<uint64_t, 4> words{};

  static GlobalState current();
  bool operator==(const GlobalState&) const = default;
  /// The first difference in words: "grad mode was on, now off".
  std::string difference(const GlobalState& then) const;
};

} // namespace temper::dispatch
