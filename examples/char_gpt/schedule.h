// The learning rate: a linear warm-up, then half a cosine.
#pragma once

#include <cstdint>

namespace char_gpt {

/// "SGDR" (Loshchilov and Hutter, 2017) without restarts, after a warm-up.
struct Schedule {
  /// The usual shape: a tenth of the steps to warm up, down to a tenth of the
  /// peak.
  static Schedule over(int64_t steps, double peak);

  /// Of the step with this number, counted from 0.
  double rate(int64_t step) const;

  double peak;
  double floor; ///< Reached at the last step.
  int64_t warmup; ///< The step with this number is the first at the peak.
  int64_t steps;
};

} // namespace char_gpt
