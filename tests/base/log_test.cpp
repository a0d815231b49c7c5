// Log lines by topic, and warnings.
#include "base/log.h"

#include <gmock/gmock.h>

#include <string>
#include <thread>
#include <vector>

#include "environment.h"

namespace temper::base {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(Log, IsSilentUnlessATopicIsOn) {
  const ScopedEnv env("TEMPER_LOG", "");
  const LogCapture log;
  TEMPER_LOG(kTrace, "one");
  EXPECT_THAT(log.lines(), IsEmpty());
}

TEST(Log, SaysWhatItsTopicsSay) {
  const ScopedEnv env("TEMPER_LOG", "guard,store");
  const LogCapture log;
  TEMPER_LOG(kGuard, "x.size(", 1, ") was 64, now 68");
  TEMPER_LOG(kTrace, "not this");
  TEMPER_LOG(kStore, "hit");
  EXPECT_THAT(
      log.lines(),
      ElementsAre("temper: x.size(1) was 64, now 68", "temper: hit"));
  EXPECT_TRUE(log.saw("now 68"));
  EXPECT_FALSE(log.saw("not this"));
}

TEST(Log, AllMeansEveryTopic) {
  const ScopedEnv env("TEMPER_LOG", "all");
  for (int topic = 0; topic < kNumTopics; ++topic) {
    EXPECT_TRUE(log_on(static_cast<Topic>(topic)));
  }
}

TEST(Log, EachTopicIsSwitchedByItsOwnName) {
  for (int i = 0; i < kNumTopics; ++i) {
    set_log_topics(topic_name(static_cast<Topic>(i)));
    for (int j = 0; j < kNumTopics; ++j) {
      EXPECT_EQ(log_on(static_cast<Topic>(j)), i == j) << i << " " << j;
    }
  }
  set_log_topics("");
}

TEST(Log, FormatsNothingWhileATopicIsOff) {
  set_log_topics("");
  int formatted = 0;
  TEMPER_LOG(kTrace, ++formatted);
  EXPECT_EQ(formatted, 0);
}

TEST(Log, AnUnknownTopicIsReportedOnceWithTheKnownOnes) {
  const LogCapture log;
  set_log_topics("trace,gaurd");
  set_log_topics("gaurd");
  ASSERT_EQ(log.lines().size(), 1U);
  EXPECT_THAT(
      log.lines()[0],
      AllOf(
          HasSubstr("temper: warning: TEMPER_LOG=gaurd: no such topic"),
          HasSubstr(
              "trace, shadow, guard, graph, program, eager, store, all")));
  set_log_topics("");
}

TEST(Log, EmptyNamesAreNoTopics) {
  const LogCapture log;
  set_log_topics(",trace,,");
  EXPECT_TRUE(log_on(Topic::kTrace));
  EXPECT_THAT(log.lines(), IsEmpty());
  set_log_topics("");
}

TEST(Log, WarnsOnceForAKey) {
  const LogCapture log;
  warn_once("a", "first");
  warn_once("a", "second");
  warn_once("b", "third");
  EXPECT_THAT(
      log.lines(),
      ElementsAre("temper: warning: first", "temper: warning: third"));
}

TEST(Log, GoesToTheInnermostCapture) {
  const LogCapture outer;
  {
    const LogCapture inner;
    warn("in");
    EXPECT_THAT(inner.lines(), ElementsAre("temper: warning: in"));
  }
  warn("out");
  EXPECT_THAT(outer.lines(), ElementsAre("temper: warning: out"));
}

TEST(Log, ThreadsDoNotMixTheirLines) {
  testing::internal::CaptureStderr();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 200; ++i) {
        log_line("first half, second half");
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  std::string expected;
  for (int i = 0; i < 800; ++i) {
    expected += "temper: first half, second half\n";
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), expected);
}

} // namespace
} // namespace temper::base
