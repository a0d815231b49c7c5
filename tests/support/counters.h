// Assertions on what temper did, as its public counters tell it.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

#include <temper/counters.h>

namespace temper::testing {

/// The counters of a stretch of a run, and what `explain` said at its end.
struct Tally : Counters {
  std::string explain;
};

/// `after` - `before`, and `sum` + `more`, field by field.
Counters subtract(const Counters& after, const Counters& before);
Counters add(const Counters& sum, const Counters& more);

/// All counters, eager reasons and the explanation, for a failure.
std::string describe(const Counters& counters);
std::string describe(const Tally& tally);

/// True iff there were eager calls, and the reason of each names an operator,
/// something by its name in quotes, or a part of the call.
bool reasoned(const Counters& counters);

/// True iff there were eager calls, the reason of each contains one of `texts`,
/// and each of `texts` is in one.
bool because(
    const Counters& counters,
    std::initializer_list<std::string_view> texts);

/// True iff `text` is in what `explain` said.
bool explains(const Tally& tally, std::string_view text);

/// True where TEMPER_DISABLE switches temper off: the tests then show that
/// nothing else changes, and there is nothing to count.
bool disabled();

} // namespace temper::testing

/// The names that a condition on counters may use are the fields of
/// `Counters`, `eager` (all eager calls), `with_reason` (there were some, see
/// `reasoned`), `because(texts...)` (for these reasons and no other) and, of a
/// `Tally`, `explains(text)`.
///   EXPECT_COUNTERS(tally, eager == 0 && program_calls == calls);
///   EXPECT_COUNTERS(tally, because("aten::nonzero") && program_calls == 0);
#define EXPECT_COUNTERS(tally, ...)                                            \
  do {                                                                         \
    const auto& tally_ = (tally);                                              \
    const auto holds_ = [&](const auto& c_) {                                  \
      [[maybe_unused]] const int64_t calls = c_.calls;                         \
      [[maybe_unused]] const int64_t program_calls = c_.program_calls;         \
      [[maybe_unused]] const int64_t traces = c_.traces;                       \
      [[maybe_unused]] const int64_t shadow_runs = c_.shadow_runs;             \
      [[maybe_unused]] const int64_t admissions = c_.admissions;               \
      [[maybe_unused]] const int64_t graphs = c_.graphs;                       \
      [[maybe_unused]] const int64_t compiles = c_.compiles;                   \
      [[maybe_unused]] const int64_t program_backwards = c_.program_backwards; \
      [[maybe_unused]] const int64_t eager = c_.eager_total();                 \
      [[maybe_unused]] const bool with_reason =                                \
          ::temper::testing::reasoned(c_);                                     \
      [[maybe_unused]] const auto because = [&c_](const auto&... texts_) {     \
        return ::temper::testing::because(c_, {texts_...});                    \
      };                                                                       \
      [[maybe_unused]] const auto explains = [&c_](const auto& text_) {        \
        return ::temper::testing::explains(c_, text_);                         \
      };                                                                       \
      return (__VA_ARGS__);                                                    \
    };                                                                         \
    EXPECT_TRUE(::temper::testing::disabled() || holds_(tally_))               \
        << "counters: expected " #__VA_ARGS__ "\n"                             \
        << ::temper::testing::describe(tally_);                                \
  } while (false)
