// What a run comes to: a table for people, JSON for programs.
#pragma once

#include <optional>
#include <ostream>
#include <string>

#include <nlohmann/json.hpp>
#include <temper/temper.h>

#include "char_gpt/checkpoint.h"
#include "char_gpt/options.h"
#include "char_gpt/schedule.h"

namespace char_gpt {

/// The largest |a - b| / |a| over all training and validation losses of the
/// two sides; nothing unless both were trained.
std::optional<double> max_relative_difference(const TrainingRun& run);

/// Tokens a second of one side; nothing if it made too few steps in this
/// process.
std::optional<double> tokens_per_second(
    const Trainer& trainer,
    const Options& options);

/// Losses at some steps, then speed, memory, compile time and counters.
void print_table(
    std::ostream& out,
    const TrainingRun& run,
    const Options& options,
    const Schedule& schedule,
    const temper::Counters& counters);

/// The same and more; what does not apply is null.
nlohmann::json to_json(
    const TrainingRun& run,
    const Options& options,
    const temper::Counters& counters);

} // namespace char_gpt
