// temper_bench: compiled against eager, in turns within one process.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>

#include <malloc.h>
#include <unistd.h>

#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <torch/torch.h>

#include "common/atomic_file.h"
#include "common/run_main.h"
#include "suites.h"

namespace bench {

namespace {

struct Options {
  std::vector<std::string> only;
  std::vector<int> threads = {1, 2};
  Timing timing;
  std::string json;
};

std::vector<Suite> suites() {
  return {
      guard_suite(),
      trace_suite(),
      shadow_suite(),
      models_suite(),
      char_gpt_suite()};
}

/// Suites and models, for --only.
std::set<std::string> names() {
  std::set<std::string> result;
  for (const Suite& suite : suites()) {
    result.insert(suite.name);
    result.insert(suite.models.begin(), suite.models.end());
  }
  return result;
}

/// On a busy machine threads that spin at the end of a parallel region keep
/// from running those that they wait for; times are then of the scheduler. The
/// OpenMP runtime looks at this variable before main: the program starts anew.
void wait_without_spinning(char** argv) {
  constexpr const char* kVariable = "OMP_WAIT_POLICY";
  if (std::getenv(kVariable) == nullptr &&
      ::setenv(kVariable, "passive", 1) == 0) {
    ::execv("/proc/self/exe", argv);
  }
}

/// glibc gives the top of the heap back to the system, or can't, by where small
/// objects happen to lie; getting it again costs page faults, in an eager call
/// as in a traced one, up to half of what the net itself takes. Here neither
/// side gives any back, so that such luck is not measured.
void keep_heap() {
#if defined(__GLIBC__)
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20); // The most that it takes.
#endif
}

/// False after printing the help.
bool parse(int argc, const char* const* argv, Options& o) {
  CLI::App app(
      "Measures temper against eager LibTorch: both in turns, after a warm-up. "
      "Times are medians; a ratio is eager / temper, the median over all "
      "rounds, and again that of the shortest times.");
  app.option_defaults()->always_capture_default();
  app.add_option("--only", o.only, "Suites or models, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember(names()));
  app.add_option(
         "--threads",
         o.threads,
         "Numbers of threads, in turn; guard and shadow take one")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app.add_option("--seconds", o.timing.seconds, "To spend on a row")
      ->check(CLI::Range(0.0, 3600.0));
  app.add_option("--rounds", o.timing.rounds, "Rounds a row; 0: by --seconds")
      ->check(CLI::Range(int64_t{0}, int64_t{1'000'000}));
  app.add_option("--json", o.json, "File to write the rows to");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      app.exit(e);
      return false;
    }
    throw examples::UsageError(
        std::string(e.what()) + "; --help lists what there is");
  }
  if (std::isnan(o.timing.seconds)) { // CLI::Range lets a NaN pass.
    throw examples::UsageError(
        "--seconds is not a number; --help lists what there is");
  }
  if (!o.json.empty()) {
    examples::check_writable("--json", o.json);
  }
  return true;
}

int run(int argc, const char* const* argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    return 0;
  }
  keep_heap();
  torch::manual_seed(1);
  nlohmann::json rows = nlohmann::json::array();
  print_header(std::cout);
  for (const Suite& suite : suites()) {
    const auto numbers =
        suite.one_thread ? std::vector<int>{1} : options.threads;
    for (const int threads : numbers) {
      at::set_num_threads(threads);
      Context context;
      context.timing = options.timing;
      context.wanted = [&](const std::string& model) {
        const auto named = [&](const std::string& name) {
          return std::find(options.only.begin(), options.only.end(), name) !=
              options.only.end();
        };
        return options.only.empty() || named(suite.name) || named(model);
      };
      context.emit = [&](const Row& row) {
        print(std::cout, row);
        rows.push_back(to_json(row));
      };
      suite.run(context);
    }
  }
  if (!options.json.empty()) {
    examples::write_atomically(options.json, rows.dump(2) + '\n');
  }
  return 0;
}

} // namespace

} // namespace bench

int main(int argc, char** argv) {
  bench::wait_without_spinning(argv);
  return examples::run_main(
      "temper_bench", [&] { return bench::run(argc, argv); });
}
