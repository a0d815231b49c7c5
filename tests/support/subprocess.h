// Tests in a process of their own, for what might crash, hang or end it.
#pragma once

#include <gtest/gtest.h>

#include <functional>

namespace temper::testing {

/// Runs `body` and leaves the process at once: with status 0, or 1 if a
/// gtest assertion failed in it or it threw. `exit` runs static destructors.
[[noreturn]] void run_and_leave(const std::function<void()>& body, bool exit);

/// A process that hangs is killed after this many seconds.
void set_time_limit(unsigned seconds);

} // namespace temper::testing

/// The statements run in a fresh process (started anew, since a fork of one
/// with OpenMP threads could not run parallel code); it must not crash and no
/// assertion may fail in it.
#define EXPECT_SURVIVES(...) TEMPER_EXPECT_SURVIVES_(false, __VA_ARGS__)

/// The same, and the process ends as a program does: statics are destroyed.
#define EXPECT_ENDS_WELL(...) TEMPER_EXPECT_SURVIVES_(true, __VA_ARGS__)

#define TEMPER_EXPECT_SURVIVES_(exit_, ...)                           \
  do {                                                                \
    GTEST_FLAG_SET(death_test_style, "threadsafe");                   \
    EXPECT_EXIT(                                                      \
        ::temper::testing::run_and_leave([&] { __VA_ARGS__ }, exit_), \
        ::testing::ExitedWithCode(0),                                 \
        "");                                                          \
  } while (false)
