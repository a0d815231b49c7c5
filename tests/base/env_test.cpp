// Reading TEMPER_* environment variables.
#include "base/env.h"

#include <gmock/gmock.h>

#include "base/log.h"
#include "environment.h"

namespace temper::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr const char* kName = "TEMPER_TEST_VARIABLE";

TEST(Env, AnEmptyVariableIsUnset) {
  EXPECT_EQ(env_string(kName), std::nullopt);
  const ScopedEnv env(kName, "");
  EXPECT_EQ(env_string(kName), std::nullopt);
  EXPECT_TRUE(env_flag(kName, true));
  EXPECT_EQ(env_int(kName, 7), 7);
}

TEST(Env, FlagsAreReadInTheUsualSpellings) {
  for (const char* yes : {"1", "true", "ON", "Yes"}) {
    const ScopedEnv env(kName, yes);
    EXPECT_TRUE(env_flag(kName, false)) << yes;
  }
  for (const char* no : {"0", "False", "off", "no"}) {
    const ScopedEnv env(kName, no);
    EXPECT_FALSE(env_flag(kName, true)) << no;
  }
}

TEST(Env, AnUnreadableFlagIsReportedOnceAndIgnored) {
  const LogCapture log;
  const ScopedEnv env(kName, "ture");
  EXPECT_TRUE(env_flag(kName, true));
  EXPECT_FALSE(env_flag(kName, false));
  EXPECT_THAT(
      log.lines(),
      ElementsAre("temper: warning: TEMPER_TEST_VARIABLE=ture: expected 1 or "
                  "0; ignored"));
}

TEST(Env, IntegersAreReadWithinTheirRange) {
  const LogCapture log;
  for (const char* good : {"-3", "0", "12"}) {
    const ScopedEnv env(kName, good);
    EXPECT_EQ(env_int(kName, 99, -3, 12), std::atoi(good));
  }
  EXPECT_THAT(log.lines(), IsEmpty());
  for (const char* bad :
       {"13", "-4", "1x", "x", "1.5", "99999999999999999999"}) {
    const ScopedEnv env(kName, bad);
    EXPECT_EQ(env_int(kName, 99, -3, 12), 99) << bad;
  }
  EXPECT_EQ(log.lines().size(), 6U);
  EXPECT_TRUE(log.saw("=13: expected an integer from -3 to 12; ignored"));
}

TEST(Env, TemperDisableSwitchesOff) {
  {
    const ScopedEnv env("TEMPER_DISABLE", "1");
    EXPECT_TRUE(disabled());
  }
  const ScopedEnv env("TEMPER_DISABLE", "0");
  EXPECT_FALSE(disabled());
}

TEST(Env, TemperDisableIsReadOnce) {
  const ScopedEnv env("TEMPER_DISABLE", "1");
  EXPECT_TRUE(disabled());
  ::setenv("TEMPER_DISABLE", "0", 1);
  EXPECT_TRUE(disabled());
}

} // namespace
} // namespace temper::base
