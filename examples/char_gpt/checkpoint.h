// Saving and resuming a run.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "char_gpt/trainer.h"

namespace char_gpt {

/// All that changes while training goes on.
struct TrainingRun {
  int64_t step = 0; ///< Steps done; with the schedule it gives the next rate.
  std::mt19937_64 batches; ///< Draws the positions of the batches.
  std::vector<int64_t> validation_steps;
  std::vector<std::unique_ptr<Trainer>> trainers; ///< One, or eager first.
};

/// Writes the run to a file: weights, optimizers, generators, step, losses.
/// `identity` says what the run depends on besides. The file is replaced as a
/// whole: killed at any moment, it is the old one or the new one.
void save_checkpoint(
    const std::string& path,
    const TrainingRun& run,
    const nlohmann::json& identity);

/// Puts a run into the state saved in a file; its trainers exist already.
/// Throws examples::UsageError if the file cannot be read or was written under
/// another identity.
void load_checkpoint(
    const std::string& path,
    TrainingRun& run,
    const nlohmann::json& identity);

} // namespace char_gpt
