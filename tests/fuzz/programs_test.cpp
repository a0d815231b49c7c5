// Random programs behave compiled as they behave eagerly: results, aliases,
// writes, gradients, random numbers, exceptions.
//
//   TEMPER_FUZZ_PROGRAMS  how many programs (500)
//   TEMPER_FUZZ_SEED      the seed of the first one; the next ones count on
//   TEMPER_FUZZ_PRINT     print each program before it runs
//   TEMPER_FUZZ_FAILURES  stop after so many programs that fail (3)
//   TEMPER_FUZZ_SHRINK    seconds to make a failing program smaller (10)
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "check.h"
#include "generator.h"
#include "shrink.h"

namespace temper::fuzz {
namespace {

uint64_t environment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

// Mostly a program that runs to its end without temper.
Case make_case(uint64_t seed) {
  for (uint64_t attempt = 0;; ++attempt) {
    // The seed of a program says all; attempts are far from its neighbours.
    Case result = Generator(seed + (attempt << 32U)).make();
    const std::string thrown = throws_eagerly(result);
    // A view whose base was written after it was made may throw when it is
    // looked at; what a compiled call returns is made later.
    const bool known = thrown.find("view of its base") != std::string::npos;
    if (thrown.empty() || attempt == 9 || (seed % 12 == 0 && !known)) {
      return result;
    }
  }
}

// What kind of difference the first one is: where it was seen, without numbers.
std::string kind(const std::string& difference) {
  std::string result = difference.substr(0, difference.find('\n'));
  result.resize(std::min(result.size(), result.find(" first at")));
  std::erase_if(result, [](char c) { return c >= '0' && c <= '9'; });
  return result;
}

std::string rerun(uint64_t seed) {
  return "TEMPER_FUZZ_SEED=" + std::to_string(seed) +
      " TEMPER_FUZZ_PROGRAMS=1 fuzz_tests";
}

volatile uint64_t current_seed = 0;

// Says which program crashed.
class CrashReport {
 public:
  CrashReport() {
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) {
      std::signal(signal, &report);
    }
  }
  ~CrashReport() {
    for (const int signal : {SIGSEGV, SIGABRT, SIGFPE}) {
      std::signal(signal, SIG_DFL);
    }
  }
  CrashReport(const CrashReport&) = delete;
  CrashReport& operator=(const CrashReport&) = delete;

 private:
  static void report(int signal) {
    std::signal(signal, SIG_DFL);
    std::cerr << "crashed; run again with\n  TEMPER_FUZZ_PRINT=1 "
              << rerun(current_seed) << std::endl;
    std::raise(signal);
  }
};

// What the programs did, all together.
struct Statistics {
  int64_t programs = 0;
  int64_t failed = 0;
  int64_t threw = 0;
  int64_t compiled = 0;
  int64_t want_backward = 0;
  int64_t compiled_backward = 0;
  Counters counters;
  std::map<std::string, int64_t> ops;

  void add(const Case& fuzz, const Outcome& outcome) {
    ++programs;
    failed += !outcome.difference.empty();
    threw += outcome.threw;
    const bool ran = outcome.counters.program_calls > 0;
    const bool ran_backward = outcome.counters.program_backwards > 0;
    want_backward += outcome.wanted_backward;
    compiled_backward += outcome.wanted_backward && ran_backward;
    compiled += ran && (ran_backward || !outcome.wanted_backward);
    Counters more = outcome.counters;
    more.eager_calls.clear();
    for (const auto& [reason, calls] : outcome.counters.eager_calls) {
      // Without the name of what it was found after.
      more.eager_calls[reason.substr(0, reason.find(" (after "))] += calls;
    }
    counters = testing::add(counters, more);
    for (const Instruction& now : fuzz.program.code) {
      ++ops[all_ops()[now.op].name];
    }
  }
};

TEST(Fuzz, RandomProgramsBehaveAsInEager) {
  const uint64_t seed = environment("TEMPER_FUZZ_SEED", 20261000);
  const uint64_t count = environment("TEMPER_FUZZ_PROGRAMS", 500);
  const auto max_failures =
      static_cast<int64_t>(environment("TEMPER_FUZZ_FAILURES", 3));
  const auto seconds =
      static_cast<double>(environment("TEMPER_FUZZ_SHRINK", 10));
  const bool print = environment("TEMPER_FUZZ_PRINT", 0) != 0;
  std::cout << "TEMPER_FUZZ_SEED=" << seed << " TEMPER_FUZZ_PROGRAMS=" << count
            << std::endl;
  // Tensors are small; threads that wait for each other only take time.
  torch::set_num_threads(1);
  const CrashReport crashes;
  Statistics all;
  for (uint64_t i = 0; i < count && all.failed < max_failures; ++i) {
    current_seed = seed + i;
    const Case fuzz = make_case(seed + i);
    if (print) {
      std::cout << "seed " << seed + i << ":\n" << text(fuzz) << std::endl;
    }
    const Outcome outcome = check(fuzz);
    all.add(fuzz, outcome);
    if (print) {
      std::cout << testing::describe(outcome.counters) << std::endl;
    }
    if (outcome.difference.empty()) {
      continue;
    }
    const Case small = shrink(
        fuzz,
        [&](const Case& candidate) {
          return kind(check(candidate).difference) == kind(outcome.difference);
        },
        seconds);
    const Outcome again = check(small);
    ADD_FAILURE() << "seed " << seed + i << ", run again with\n  "
                  << rerun(seed + i) << "\nwhole program:\n"
                  << text(fuzz) << outcome.difference
                  << testing::describe(outcome.counters) << "made smaller:\n"
                  << text(small) << again.difference
                  << testing::describe(again.counters);
  }
  const auto percent = [](int64_t part, int64_t whole) {
    return whole == 0 ? 100 : 100 * part / whole;
  };
  std::cout << all.programs << " programs, " << all.ops.size() << " of "
            << all_ops().size() << " operators; " << all.threw << " threw, "
            << percent(all.compiled, all.programs) << " % ran compiled; of "
            << all.want_backward << " with a backward " << all.compiled_backward
            << " ran it compiled\n"
            << testing::describe(all.counters) << std::flush;
  if (count >= 50 && all.failed == 0 && !testing::disabled() &&
      !testing::has_mutant()) {
    EXPECT_GE(percent(all.compiled, all.programs), 60);
    EXPECT_GE(percent(all.compiled_backward, all.want_backward), 60);
  }
}

} // namespace
} // namespace temper::fuzz
