// The process and thread state that a call's result depends on.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace temper::dispatch {

/// Grad, inference and autocast state, the thread's dispatch keys, default
/// dtype, determinism, SDP and precision flags, anomaly mode, saved-tensor
/// hooks, forward-mode AD, the default generator's identity, in a form that
/// compares in nanoseconds. Not part of it is what programs obey as eager ops
/// do: the number of threads, flushing of denormals, autocast's weight cache.
/// (LibTorch has no default device in C++.)
struct GlobalState {
  std::array<uint64_t, 6> words{};

  static GlobalState current();
  bool operator==(const GlobalState&) const = default;
  /// The first difference in words, from this to `then`: "grad mode was on, now
  /// off". Empty if none.
  std::string difference(const GlobalState& then) const;
};

} // namespace temper::dispatch
