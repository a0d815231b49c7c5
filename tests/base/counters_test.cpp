// Counting per call site and process-wide.
#include "base/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace temper::base {
namespace {

class CountersTest : public testing::Test {
 protected:
  void SetUp() override {
    reset_counters();
  }
};

TEST_F(CountersTest, EveryCounterHasItsOwnField) {
  // Distinct numbers, so that two fields swapped are seen.
  for (int i = 0; i < kNumCounters; ++i) {
    bump(static_cast<Counter>(i), i + 1);
  }
  const Counters now = counters();
  EXPECT_EQ(now.calls, 1);
  EXPECT_EQ(now.program_calls, 2);
  EXPECT_EQ(now.traces, 3);
  EXPECT_EQ(now.shadow_runs, 4);
  EXPECT_EQ(now.admissions, 5);
  EXPECT_EQ(now.graphs, 6);
  EXPECT_EQ(now.compiles, 7);
  EXPECT_EQ(now.program_backwards, 8);
}

TEST_F(CountersTest, WhatASiteCountsTheProcessCountsToo) {
  SiteCounters a;
  SiteCounters b;
  a.bump(Counter::kCalls);
  b.bump(Counter::kCalls, 2);
  a.bump_eager("nonzero");
  b.bump_eager("nonzero");
  b.bump_eager("item");
  EXPECT_EQ(a.read().calls, 1);
  EXPECT_EQ(b.read().calls, 2);
  EXPECT_EQ(counters().calls, 3);
  EXPECT_EQ(a.read().eager_total(), 1);
  EXPECT_EQ(b.read().eager_total(), 2);
  EXPECT_EQ(
      counters().eager_calls,
      (std::map<std::string, int64_t>{{"item", 1}, {"nonzero", 2}}));
}

TEST_F(CountersTest, ResettingTheProcessKeepsTheSitesAndBack) {
  SiteCounters site;
  site.bump(Counter::kTraces);
  site.bump_eager("item");
  reset_counters();
  EXPECT_EQ(counters().traces, 0);
  EXPECT_EQ(counters().eager_total(), 0);
  EXPECT_EQ(site.read().traces, 1);
  EXPECT_EQ(site.read().eager_total(), 1);
}

TEST_F(CountersTest, ThreadsLoseNothing) {
  SiteCounters site;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        site.bump(Counter::kCalls);
        site.bump_eager("item");
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(site.read().calls, 4000);
  EXPECT_EQ(counters().calls, 4000);
  EXPECT_EQ(counters().eager_total(), 4000);
}

} // namespace
} // namespace temper::base
