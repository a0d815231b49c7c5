// The options, their ranges, and how they depend on each other.
#include "char_gpt/options.h"

#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>

#include "common/atomic_file.h"
#include "common/run_main.h"

namespace char_gpt {

namespace {

using examples::UsageError;

const std::map<std::string, Mode> kModes = {
    {"both", Mode::kBoth},
    {"eager", Mode::kEager},
    {"compiled", Mode::kCompiled}};

std::string name_of(Mode mode) {
  for (const auto& [name, value] : kModes) {
    if (value == mode) {
      return name;
    }
  }
  return {};
}

void check(const Options& options) {
  if (options.width % options.heads != 0) {
    throw UsageError(
        "--width " + std::to_string(options.width) +
        " is not divisible by --heads " + std::to_string(options.heads) +
        ": expected heads of equal width; choose a multiple");
  }
  // CLI::Range lets a NaN pass: it is neither below nor above.
  for (const auto& [name, value] :
       {std::pair("--lr", options.lr),
        std::pair("--dropout", options.dropout)}) {
    if (std::isnan(value)) {
      throw UsageError(
          std::string(name) + " is not a number; --help lists what there is");
    }
  }
  if (!options.resume.empty()) {
    examples::check_readable("--resume", options.resume);
  }
  if (!options.checkpoint.empty()) {
    examples::check_writable("--checkpoint", options.checkpoint);
  }
  if (!options.json.empty()) {
    examples::check_writable("--json", options.json);
  }
}

} // namespace

std::optional<Options> parse_options(int argc, const char* const* argv) {
  Options o;
  std::string mode = name_of(o.mode);
  CLI::App app(
      "Trains a small GPT on text, character by character: eagerly and "
      "compiled by temper, from the same seed, step by step side by side.");
  app.option_defaults()->always_capture_default()->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
  constexpr int64_t kMany = 1'000'000;

  app.add_option("--mode", mode, "What to train")
      ->check(CLI::IsMember({"both", "eager", "compiled"}));
  app.add_option("--backend", o.backend, "temper's backend")
      ->check(CLI::IsMember({"aten", "eager"}));
  app.add_option(
         "--numerics",
         o.numerics,
         "How close to eager; both backends give eager's bits under each")
      ->check(CLI::IsMember({"accurate", "eager", "fast"}));

  app.add_option("--text", o.text, "A plain text (default: Debian's fortunes)");
  app.add_option("--steps", o.steps, "Training steps")
      ->check(CLI::Range(int64_t{1}, kMany));
  app.add_option("--batch", o.batch, "Texts a step")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--block", o.block, "Characters the model sees")
      ->check(CLI::Range(int64_t{2}, int64_t{4096}));
  app.add_option("--layers", o.layers, "Transformer blocks")
      ->check(CLI::Range(int64_t{1}, int64_t{64}));
  app.add_option("--heads", o.heads, "Attention heads a block")
      ->check(CLI::Range(int64_t{1}, int64_t{64}));
  app.add_option("--width", o.width, "Width of the model")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--dropout", o.dropout, "Probability of dropping a value")
      ->check(CLI::Range(0.0, 0.95));
  app.add_option("--lr", o.lr, "Peak learning rate")
      ->check(CLI::Range(0.0, 10.0));
  app.add_option("--seed", o.seed, "Seed of weights, batches and dropout")
      // CLI11 takes what is too large for an int64_t for the largest one.
      ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max() - 1));
  app.add_option("--threads", o.threads, "0: as many as LibTorch takes")
      ->check(CLI::Range(0, 1024));

  app.add_option("--eval-every", o.eval_every, "Steps between validations")
      ->check(CLI::Range(int64_t{1}, kMany));
  app.add_option("--sample", o.sample, "Characters to write; 0: none")
      ->check(CLI::Range(int64_t{0}, kMany));
  app.add_option("--checkpoint", o.checkpoint, "File to save the run in");
  app.add_option(
         "--checkpoint-every", o.checkpoint_every, "Steps between two saves")
      ->check(CLI::Range(int64_t{1}, kMany));
  app.add_option("--resume", o.resume, "Checkpoint to go on from");
  app.add_option("--json", o.json, "File to write the results to");
  app.add_flag("--verbose", o.verbose, "Print every step, and what temper did");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      app.exit(e);
      return std::nullopt;
    }
    throw UsageError(std::string(e.what()) + "; --help lists what there is");
  }
  o.mode = kModes.at(mode);
  check(o);
  return o;
}

nlohmann::json identity(const Options& o) {
  // Threads too: a sum split among more of them is rounded otherwise.
  return {
      {"mode", name_of(o.mode)},
      {"steps", o.steps},
      {"batch", o.batch},
      {"block", o.block},
      {"layers", o.layers},
      {"heads", o.heads},
      {"width", o.width},
      {"dropout", o.dropout},
      {"lr", o.lr},
      {"seed", o.seed},
      {"threads", o.threads},
      {"eval-every", o.eval_every}};
}

} // namespace char_gpt
