// Arithmetic on counters, and how they are printed.
#include "support/counters.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

namespace temper::testing {
namespace {

Counters combine(const Counters& a, const Counters& b, int64_t sign) {
  Counters result = a;
  result.calls += sign * b.calls;
  result.program_calls += sign * b.program_calls;
  result.traces += sign * b.traces;
  result.shadow_runs += sign * b.shadow_runs;
  result.admissions += sign * b.admissions;
  result.graphs += sign * b.graphs;
  result.compiles += sign * b.compiles;
  result.program_backwards += sign * b.program_backwards;
  for (const auto& [reason, count] : b.eager_calls) {
    auto& entry = result.eager_calls[reason];
    entry += sign * count;
    if (entry == 0) {
      result.eager_calls.erase(reason);
    }
  }
  return result;
}

// A program that ran without temper has counted nothing, whatever its tests
// looked at.
class NothingCounted : public ::testing::Environment {
 public:
  void TearDown() override {
    EXPECT_TRUE(counts_nothing(temper::counters()))
        << "TEMPER_DISABLE is set, but\n"
        << describe(temper::counters());
  }
};
[[maybe_unused]] const bool is_disabled = [] {
  if (disabled()) {
    ::testing::AddGlobalTestEnvironment(new NothingCounted); // Owns it.
  }
  return disabled();
}();

} // namespace

Counters subtract(const Counters& after, const Counters& before) {
  return combine(after, before, -1);
}

Counters add(const Counters& sum, const Counters& more) {
  return combine(sum, more, 1);
}

std::string describe(const Counters& c) {
  std::ostringstream out;
  out << "  calls " << c.calls << ", program_calls " << c.program_calls
      << ", traces " << c.traces << ", shadow_runs " << c.shadow_runs
      << ", admissions " << c.admissions << "\n  graphs " << c.graphs
      << ", compiles " << c.compiles << ", program_backwards "
      << c.program_backwards << ", eager " << c.eager_total() << '\n';
  for (const auto& [reason, count] : c.eager_calls) {
    out << "  eager " << count << " x: '" << reason << "'\n";
  }
  return out.str();
}

std::string describe(const Tally& tally) {
  return describe(static_cast<const Counters&>(tally)) + tally.explain;
}

bool because(
    const Counters& counters,
    std::initializer_list<std::string_view> texts) {
  const auto says = [](const auto& entry, std::string_view text) {
    return entry.first.find(text) != std::string::npos;
  };
  const auto& eager = counters.eager_calls;
  const bool each_is_said =
      std::all_of(texts.begin(), texts.end(), [&](auto text) {
        return std::any_of(eager.begin(), eager.end(), [&](const auto& entry) {
          return says(entry, text);
        });
      });
  const bool no_other =
      std::all_of(eager.begin(), eager.end(), [&](const auto& entry) {
        return std::any_of(texts.begin(), texts.end(), [&](auto text) {
          return says(entry, text);
        });
      });
  return counters.eager_total() > 0 && each_is_said && no_other;
}

int64_t eager_for(const Counters& counters, std::string_view text) {
  int64_t sum = 0;
  for (const auto& [reason, count] : counters.eager_calls) {
    sum += reason.find(text) == std::string::npos ? 0 : count;
  }
  return sum;
}

bool explains(const Tally& tally, std::string_view text) {
  return tally.explain.find(text) != std::string::npos;
}

bool disabled() {
  const char* value = std::getenv("TEMPER_DISABLE");
  return value != nullptr && std::string(value) != "0" &&
      std::string(value) != "";
}

bool has_mutant() {
  const char* value = std::getenv("TEMPER_TEST_MUTANT");
  return value != nullptr && *value != '\0';
}

bool counts_nothing(const Counters& c) {
  return c.calls == 0 && c.program_calls == 0 && c.traces == 0 &&
      c.shadow_runs == 0 && c.admissions == 0 && c.graphs == 0 &&
      c.compiles == 0 && c.program_backwards == 0 && c.eager_calls.empty();
}

} // namespace temper::testing
