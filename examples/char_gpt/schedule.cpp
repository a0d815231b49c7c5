// The learning rate's formula.
#include "char_gpt/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace char_gpt {

Schedule Schedule::over(int64_t steps, double peak) {
  return {peak, peak / 10, std::max<int64_t>(steps / 10, 1), steps};
}

double Schedule::rate(int64_t step) const {
  if (step < warmup) {
    return peak * static_cast<double>(step + 1) /
        static_cast<double>(warmup + 1);
  }
  const double progress = std::min(
      static_cast<double>(step - warmup) /
          static_cast<double>(std::max<int64_t>(steps - 1 - warmup, 1)),
      1.0);
  return floor +
      (peak - floor) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
}

} // namespace char_gpt
