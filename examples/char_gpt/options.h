// The command line of char_gpt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace char_gpt {

enum class Mode { kBoth, kEager, kCompiled };

struct Options {
  int64_t steps = 300;
  int64_t batch = 16;
  int64_t block = 64; ///< Characters that the model sees at once.
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  double dropout = 0.1;
  double lr = 2e-3; ///< The peak of the schedule.
  int threads = 0; ///< 0: as many as LibTorch takes by itself.
  uint64_t seed = 1;
  std::string backend = "aten";
  std::string numerics = "accurate";
  Mode mode = Mode::kBoth;
  int64_t eval_every = 50;
  std::string checkpoint; ///< A file; empty: none is written.
  int64_t checkpoint_every = 50;
  std::string resume;
  std::string text; ///< Empty: Debian's fortunes.
  int64_t sample = 200; ///< Characters.
  std::string json;
  bool verbose = false;
};

/// Reads the command line. Returns nothing after printing the help; throws
/// examples::UsageError for what cannot be used.
std::optional<Options> parse_options(int argc, const char* const* argv);

/// What decides the numbers of a run, by option name: a checkpoint can be
/// resumed only under equal ones.
nlohmann::json identity(const Options& options);

} // namespace char_gpt
