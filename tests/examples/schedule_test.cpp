// The learning rate's schedule.
#include "char_gpt/schedule.h"

#include <gtest/gtest.h>

namespace char_gpt {
namespace {

TEST(Schedule, RisesToThePeakThenFallsToTheFloor) {
  const Schedule schedule = Schedule::over(300, 1e-3);
  EXPECT_GT(schedule.rate(0), 0);
  for (int64_t step = 1; step < 300; ++step) {
    if (step <= schedule.warmup) {
      EXPECT_GT(schedule.rate(step), schedule.rate(step - 1)) << step;
    } else {
      EXPECT_LT(schedule.rate(step), schedule.rate(step - 1)) << step;
    }
  }
  EXPECT_DOUBLE_EQ(schedule.rate(schedule.warmup), 1e-3);
  EXPECT_DOUBLE_EQ(schedule.rate(299), 1e-4);
}

TEST(Schedule, StaysInRangeForVeryShortRuns) {
  for (int64_t steps = 1; steps < 25; ++steps) {
    const Schedule schedule = Schedule::over(steps, 1.0);
    for (int64_t step = 0; step < steps; ++step) {
      EXPECT_GE(schedule.rate(step), 0.1) << step << " of " << steps;
      EXPECT_LE(schedule.rate(step), 1.0) << step << " of " << steps;
    }
  }
}

} // namespace
} // namespace char_gpt
