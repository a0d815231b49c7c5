// A training run of char_gpt, small enough for a test.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "char_gpt/checkpoint.h"
#include "char_gpt/data.h"
#include "char_gpt/options.h"

namespace char_gpt {

inline Options small_options() {
  Options options;
  options.batch = 2;
  options.block = 8;
  options.layers = 2;
  options.heads = 2;
  options.width = 8;
  options.lr = 1e-2;
  options.dropout = 0.3;
  return options;
}

constexpr int64_t kSmallVocabulary = 5;

/// Of the sides "eager" and "compiled", which are what they are called.
inline TrainingRun small_run(
    const Options& options = small_options(),
    std::initializer_list<const char*> sides = {"eager", "compiled"}) {
  const GptConfig config{
      .vocabulary = kSmallVocabulary,
      .block = options.block,
      .layers = options.layers,
      .heads = options.heads,
      .width = options.width,
      .dropout = options.dropout};
  TrainingRun run;
  run.batches.seed(7);
  for (const std::string side : sides) {
    run.trainers.push_back(std::make_unique<Trainer>(
        side, options, config, /*compiled=*/side == "compiled"));
  }
  return run;
}

/// `steps` further steps of all sides, on batches that the run draws.
inline void train(
    TrainingRun& run,
    int64_t steps,
    const Options& options = small_options()) {
  std::vector<uint8_t> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<uint8_t>(i * i % kSmallVocabulary);
  }
  const Windows windows("training", tokens, options.batch, options.block);
  for (int64_t i = 0; i < steps; ++i) {
    const Batch batch = windows.draw(run.batches);
    for (const auto& trainer : run.trainers) {
      trainer->train(batch, options.lr);
    }
    ++run.step;
  }
}

/// The loss of all sides on a batch that is the same each time.
inline void validate(
    TrainingRun& run,
    const Options& options = small_options()) {
  const Windows windows(
      "validation", std::vector<uint8_t>(100, 3), options.batch, options.block);
  for (const auto& trainer : run.trainers) {
    trainer->validate(windows.spread(1));
  }
  run.validation_steps.push_back(run.step);
}

} // namespace char_gpt
