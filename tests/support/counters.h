// Assertions on what temper did, as its public counters tell it.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
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

/// Eager calls by reason.
using Reasons = std::map<std::string, int64_t>;

/// True iff there were eager calls, the reason of each contains one of `texts`,
/// and each of `texts` is in one.
bool because(
    const Counters& counters,
    std::initializer_list<std::string_view> texts);

/// Eager calls for reasons that contain `text`.
int64_t eager_for(const Counters& counters, std::string_view text);

/// True iff `text` is in what `explain` said.
bool explains(const Tally& tally, std::string_view text);

/// True where TEMPER_DISABLE switches temper off: the tests then show that
/// nothing else changes, and all counters must be 0.
bool disabled();

/// True where TEMPER_TEST_MUTANT makes graphs wrong: values must tell, so
/// counters are not looked at.
bool has_mutant();

/// True iff all counters are 0.
bool counts_nothing(const Counters& counters);

} // namespace temper::testing

/// The names that a condition on counters may use are the fields of
/// `Counters`, `eager` (all eager calls), `reasons` (eager calls by reason),
/// `eager_for(text)` (those whose reason contains the text),
/// `because(texts...)` (there were some, for reasons that contain these texts
/// and for no other) and, of a `Tally`, `explains(text)`.
///   EXPECT_COUNTERS(tally, eager == 0 && program_calls == calls);
///   EXPECT_COUNTERS(tally, reasons == Reasons{{"limit of graphs reached",
///   3}}); EXPECT_COUNTERS(tally, because("aten::nonzero") && program_calls ==
///   0);
/// With TEMPER_DISABLE the condition is that nothing was counted.
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
      [[maybe_unused]] const ::temper::testing::Reasons& reasons =             \
          c_.eager_calls;                                                      \
      [[maybe_unused]] const auto eager_for = [&c_](const auto& text_) {       \
        return ::temper::testing::eager_for(c_, text_);                        \
      };                                                                       \
      [[maybe_unused]] const auto because = [&c_](const auto&... texts_) {     \
        return ::temper::testing::because(c_, {texts_...});                    \
      };                                                                       \
      [[maybe_unused]] const auto explains = [&c_](const auto& text_) {        \
        return ::temper::testing::explains(c_, text_);                         \
      };                                                                       \
      return (__VA_ARGS__);                                                    \
    };                                                                         \
    EXPECT_TRUE(                                                               \
        ::temper::testing::disabled()                                          \
            ? ::temper::testing::counts_nothing(tally_)                        \
            : ::temper::testing::has_mutant() || holds_(tally_))               \
        << "counters: expected " #__VA_ARGS__ "\n"                             \
        << ::temper::testing::describe(tally_);                                \
  } while (false)
