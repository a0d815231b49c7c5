// Runs scenarios twice and compares what they showed.
#include "support/compare.h"

#include <gtest/gtest.h>

#include <cxxabi.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>
#include <typeinfo>

#include "runtime/artifact_store.h"
#include "support/mutants.h"
#include "support/segments.h"

namespace temper::testing {
namespace {

// Here, because who compares is who must notice.
[[maybe_unused]] const bool has_mutant = install_mutant();
[[maybe_unused]] const bool has_bucket_bytes = install_bucket_bytes();

// One report shows this many differences: the first one matters, the others
// tell how far it spread.
constexpr size_t kMaxDifferences = 6;

std::string type_name(const std::exception& e) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(e).name(), nullptr, nullptr, &status);
  std::string result = status == 0 ? name : typeid(e).name();
  std::free(name);
  return result;
}

// Type and text, without the stack trace that c10::Error adds.
std::string describe_exception(const std::exception& e) {
  const auto* error = dynamic_cast<const c10::Error*>(&e);
  return type_name(e) + ": " +
      (error ? error->what_without_backtrace() : e.what());
}

std::string number_text(double value) {
  std::ostringstream out;
  out << std::hexfloat << value;
  return out.str();
}

// True iff the scenario came to its end.
bool execute(const std::function<void(Trial&)>& scenario, Trial& run) {
  torch::manual_seed(run.seed());
  try {
    scenario(run);
    return true;
  } catch (const std::exception& e) {
    ADD_FAILURE() << "the " << (run.compiled() ? "compiled" : "eager")
                  << " run threw " << describe_exception(e);
  }
  return false;
}

// All differences, one a paragraph; empty if there are none.
std::string differences(
    const Transcript& eager,
    const Transcript& compiled,
    Tolerance tolerance) {
  const auto& expected = eager.observations();
  const auto& actual = compiled.observations();
  std::ostringstream out;
  size_t found = 0;
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    const auto text = difference(expected[i], actual[i], tolerance);
    if (text && ++found <= kMaxDifferences) {
      out << *text << '\n';
    }
  }
  if (found > kMaxDifferences) {
    out << "and " << found - kMaxDifferences << " more of " << expected.size()
        << '\n';
  }
  if (expected.size() != actual.size()) {
    out << "eager showed " << expected.size() << " things, compiled "
        << actual.size() << '\n';
  }
  return out.str();
}

} // namespace

Trial::Trial(bool compiled, uint64_t seed) : compiled_(compiled), seed_(seed) {}

void Trial::note(const std::string& name, const torch::Tensor& tensor) {
  transcript_.add(name, tensor);
}

void Trial::note(
    const std::string& name,
    const std::vector<torch::Tensor>& list) {
  note(name + ".size", static_cast<int64_t>(list.size()));
  for (size_t i = 0; i < list.size(); ++i) {
    note(name + "[" + std::to_string(i) + "]", list[i]);
  }
}

void Trial::note(const std::string& name, int64_t value) {
  transcript_.add_text(name, std::to_string(value));
}

void Trial::note(const std::string& name, double value) {
  transcript_.add_text(name, number_text(value));
}

void Trial::note(const std::string& name, const std::string& value) {
  transcript_.add_text(name, value);
}

void Trial::note_grad(const std::string& name, const torch::Tensor& leaf) {
  transcript_.add(name + ".grad", leaf.grad());
}

void Trial::note_module(
    const std::string& name,
    const torch::nn::Module& module) {
  for (const auto& entry : module.named_parameters()) {
    note(name + "." + entry.key(), entry.value());
    note_grad(name + "." + entry.key(), entry.value());
  }
  for (const auto& entry : module.named_buffers()) {
    note(name + "." + entry.key(), entry.value());
  }
}

void Trial::note_generator() {
  note("generator", at::detail::getDefaultCPUGenerator().get_state());
}

bool Trial::attempt_erased(
    const std::string& name,
    const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    note(name, "threw " + describe_exception(e));
    return false;
  }
  note(name, std::string("no exception"));
  return true;
}

void Trial::steady() {
  steady_since_ = temper::counters();
}

void Trial::warm_up() {
  steady_ = steady_counters();
  steady_since_.reset();
}

Counters Trial::steady_counters() {
  return steady_since_
      ? add(steady_, subtract(temper::counters(), *steady_since_))
      : steady_;
}

std::string Trial::explain() const {
  return explain_ ? explain_() : std::string();
}

Report expect_same(
    const std::function<void(Trial&)>& scenario,
    const Settings& settings,
    std::source_location where) {
  const ::testing::ScopedTrace trace(
      where.file_name(), static_cast<int>(where.line()), "this scenario");
  const bool exact =
      settings.tolerance.relative == 0 && settings.tolerance.absolute == 0;
  EXPECT_TRUE(exact || !settings.why_tolerance.empty())
      << "a tolerance needs its reason";

  Report report;
  Trial eager(false, test_seed());
  if (!execute(scenario, eager)) {
    return report;
  }
  // Graphs are counted as if the scenario were alone in the process.
  runtime::default_store().clear();
  const Counters before = temper::counters();
  Trial compiled(true, test_seed());
  const bool ended = execute(scenario, compiled);
  static_cast<Counters&>(report.total) = subtract(temper::counters(), before);
  static_cast<Counters&>(report.steady) = compiled.steady_counters();
  report.total.explain = report.steady.explain = compiled.explain();
  if (!ended) {
    return report;
  }

  EXPECT_FALSE(eager.transcript().observations().empty())
      << "the scenario notes nothing";
  const auto text = differences(
      eager.transcript(), compiled.transcript(), settings.tolerance);
  EXPECT_TRUE(text.empty()) << "seed " << test_seed() << ", run again with\n  "
                            << rerun_line() << '\n'
                            << text << describe(report.total);
  return report;
}

uint64_t test_seed() {
  const char* value = std::getenv("TEMPER_TEST_SEED");
  return value ? std::strtoull(value, nullptr, 10) : 1;
}

std::string rerun_line() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::ostringstream out;
  out << "TEMPER_TEST_SEED=" << test_seed() << ' '
      << program_invocation_short_name;
  if (test) {
    out << " --gtest_filter=" << test->test_suite_name() << '.' << test->name();
  }
  return out.str();
}

} // namespace temper::testing
