// The user's errors and temper's own.
#include "base/error.h"

#include <gmock/gmock.h>

#include <string>
#include <type_traits>

namespace temper {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

template <typename E, typename F>
std::string message_of(const F& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

TEST(Error, NamesTemperAndSaysNoMoreThanItWasTold) {
  const auto fails = [] { TEMPER_CHECK(1 > 2, "no backend '", "llvn", "'"); };
  EXPECT_EQ(message_of<Error>(fails), "temper: no backend 'llvn'");
  // As all of LibTorch's, so that user code needs no second handler.
  EXPECT_EQ(message_of<c10::Error>(fails), "temper: no backend 'llvn'");
}

TEST(Error, IsNotThrownWhereTheConditionHolds) {
  EXPECT_NO_THROW(TEMPER_CHECK(2 > 1, "never"));
  EXPECT_NO_THROW(TEMPER_INTERNAL(2 > 1));
}

TEST(Error, FormatsItsMessageOnlyWhenItIsThrown) {
  int formatted = 0;
  const auto count = [&] { return ++formatted; };
  TEMPER_CHECK(true, count());
  TEMPER_INTERNAL(true, count());
  EXPECT_EQ(formatted, 0);
}

TEST(InternalError, AsksForAReportAndNamesThePlaceWithoutTheMachine) {
  const std::string what = message_of<InternalError>([] {
    base::throw_internal("/home/me/src/graph/x.cpp", 7, "a == b", "it broke");
  });
  EXPECT_THAT(
      what,
      StartsWith("temper: internal error: it broke (src/graph/x.cpp:7)\n"));
  EXPECT_THAT(what, HasSubstr("please report it"));
  EXPECT_THAT(what, Not(HasSubstr("/home/me")));
}

TEST(InternalError, WithoutAMessageQuotesTheCondition) {
  const auto fails = [] { TEMPER_INTERNAL(1 > 2); };
  EXPECT_THAT(message_of<InternalError>(fails), HasSubstr("expected 1 > 2 ("));
}

TEST(InternalError, IsToldFromTheUsers) {
  static_assert(!std::is_base_of_v<Error, InternalError>);
  static_assert(!std::is_base_of_v<InternalError, Error>);
  EXPECT_THROW(TEMPER_INTERNAL(false), InternalError);
  EXPECT_THROW(TEMPER_CHECK(false, ""), Error);
}

} // namespace
} // namespace temper
