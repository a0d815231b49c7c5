// Which of the recorded backwards one that has begun is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dispatch/plan.h"

namespace temper::dispatch {

/// A backward that has reached the first node of a call's chain.
struct Arriving {
  enum class Asked : uint8_t { kNo, kYes, kHasNone };

  int32_t first_step = 0;
  /// By `AutogradTrace::outputs`: a gradient comes from outside the call, or
  /// may come.
  std::vector<bool> gradients;
  /// By `AutogradTrace::inputs`: is its gradient wanted, or does it take none
  /// at this call?
  std::vector<Asked> inputs;
  int64_t autocast = 0; ///< `capture::autocast_state()`.
  /// As `gradients`: the gradient; undefined if none, or if it has yet to come.
  std::vector<at::Tensor> arrived;
};

struct BackwardChoice {
  int32_t backward = 0; ///< Into `Plan::backwards`.
  /// By output: a gradient may come that leads to nothing that is asked for.
  std::vector<bool> ignored;
};

/// The recorded backward with most gradients that `arriving` agrees with.
std::optional<BackwardChoice> choose_backward(
    const Plan& plan,
    const Arriving& arriving);

} // namespace temper::dispatch
