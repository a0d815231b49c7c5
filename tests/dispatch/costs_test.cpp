// What a call site spent, as text.
#include "dispatch/costs.h"

#include <gmock/gmock.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace temper::dispatch {
namespace {

using std::chrono::microseconds;
using testing::MatchesRegex;

std::string text(const Costs& costs) {
  std::ostringstream out;
  costs.print(out);
  return out.str();
}

TEST(Costs, AreSummedByKind) {
  Costs costs;
  EXPECT_EQ(text(costs), "");
  costs.add(Cost::kCompiles, microseconds(1234));
  EXPECT_EQ(text(costs), "1 compile 1.23 ms");
  costs.add(Cost::kTraces, microseconds(400));
  costs.add(Cost::kTraces, microseconds(11));
  costs.add(Cost::kShadowRuns, microseconds(4));
  EXPECT_EQ(
      text(costs), "2 traces 0.41 ms, 1 shadow run 0 ms, 1 compile 1.23 ms");
}

TEST(Costs, AStopwatchAddsWhatItsLifeTook) {
  Costs costs;
  {
    const Stopwatch stopwatch(costs, Cost::kTraces);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    EXPECT_GE(stopwatch.milliseconds(), 3);
    EXPECT_EQ(text(costs), "");
  }
  EXPECT_THAT(text(costs), MatchesRegex("1 trace ([3-9]|[0-9]{2,}).* ms"));
  try {
    const Stopwatch stopwatch(costs, Cost::kTraces);
    throw std::runtime_error("as the user's code may");
  } catch (const std::runtime_error&) {
  }
  EXPECT_THAT(text(costs), MatchesRegex("2 traces .*"));
}

TEST(Costs, AreCountedFromManyThreads) {
  Costs costs;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 1000; ++j) {
        costs.add(Cost::kTraces, microseconds(10));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(text(costs), "4000 traces 40 ms");
}

} // namespace
} // namespace temper::dispatch
