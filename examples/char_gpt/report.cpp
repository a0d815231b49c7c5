// The closing table and the JSON file.
#include "char_gpt/report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <limits>
#include <sstream>
#include <vector>

namespace char_gpt {

namespace {

using nlohmann::json;

constexpr int kLabel = 26;
constexpr int kColumn = 12;
constexpr size_t kRows = 8;

/// Infinite where one of the two is no number.
double relative_difference(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) {
    return 0;
  }
  const double difference = std::abs(a - b) / std::abs(a);
  return std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                : difference;
}

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

template <typename T>
std::string text(const T& value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

std::string scientific(double value) {
  std::ostringstream out;
  out << std::setprecision(2) << value;
  return out.str();
}

/// The values of all sides in a row, and a last column.
void row(
    std::ostream& out,
    const std::string& label,
    const std::vector<std::string>& columns) {
  out << std::left << std::setw(kLabel) << label << std::right;
  for (const std::string& column : columns) {
    out << std::setw(kColumn) << column;
  }
  out << '\n';
}

/// At most `kRows` of the numbers, evenly, with the first and the last.
std::vector<size_t> choose(size_t count) {
  std::vector<size_t> chosen;
  const size_t rows = std::min(count, kRows);
  for (size_t i = 0; i < rows; ++i) {
    chosen.push_back(rows == 1 ? 0 : i * (count - 1) / (rows - 1));
  }
  return chosen;
}

void print_losses(
    std::ostream& out,
    const TrainingRun& run,
    const Schedule& schedule,
    bool validation) {
  const auto& first = *run.trainers.front();
  const size_t count =
      validation ? first.validation.size() : first.losses.size();
  for (const size_t i : choose(count)) {
    const auto step =
        validation ? run.validation_steps[i] : static_cast<int64_t>(i) + 1;
    std::vector<std::string> columns;
    std::vector<double> values;
    for (const auto& trainer : run.trainers) {
      values.push_back(
          validation ? trainer->validation[i] : trainer->losses[i]);
      columns.push_back(text(values.back(), 5));
    }
    if (values.size() == 2) {
      columns.push_back(scientific(relative_difference(values[0], values[1])));
    }
    row(out,
        "  step " + std::to_string(step) +
            (validation ? "" : ", lr " + scientific(schedule.rate(step - 1))),
        columns);
  }
}

json counters_json(const temper::Counters& c) {
  return {
      {"calls", c.calls},
      {"program_calls", c.program_calls},
      {"traces", c.traces},
      {"shadow_runs", c.shadow_runs},
      {"admissions", c.admissions},
      {"graphs", c.graphs},
      {"compiles", c.compiles},
      {"program_backwards", c.program_backwards},
      {"eager_calls", c.eager_calls}};
}

} // namespace

std::optional<double> max_relative_difference(const TrainingRun& run) {
  if (run.trainers.size() != 2) {
    return std::nullopt;
  }
  double largest = 0;
  const auto compare = [&](const auto& a, const auto& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, relative_difference(a[i], b[i]));
    }
  };
  compare(run.trainers[0]->losses, run.trainers[1]->losses);
  compare(run.trainers[0]->validation, run.trainers[1]->validation);
  return largest;
}

std::optional<double> tokens_per_second(
    const Trainer& trainer,
    const Options& options) {
  const std::optional<double> seconds = trainer.step_seconds();
  if (!seconds) {
    return std::nullopt;
  }
  return static_cast<double>(options.batch * options.block) / *seconds;
}

void print_table(
    std::ostream& out,
    const TrainingRun& run,
    const Options& options,
    const Schedule& schedule,
    const temper::Counters& counters) {
  std::vector<std::string> names;
  std::vector<std::string> speeds;
  std::vector<std::string> bytes;
  std::vector<double> rates;
  std::vector<double> sizes;
  const Trainer* compiled = nullptr;
  for (const auto& trainer : run.trainers) {
    names.push_back(trainer->name());
    const auto rate = tokens_per_second(*trainer, options);
    speeds.push_back(rate ? text(*rate, 0) : "-");
    const auto size = trainer->step_bytes();
    bytes.push_back(size ? text(static_cast<double>(*size) / 1e6, 1) : "-");
    if (rate && size) {
      rates.push_back(*rate);
      sizes.push_back(static_cast<double>(*size));
    }
    if (trainer->compiled()) {
      compiled = trainer.get();
    }
  }
  const auto header = [&](const char* of_both) {
    auto result = names;
    result.resize(names.size() == 2 ? 3 : names.size(), of_both);
    return result;
  };
  row(out, "training loss", header("rel. diff."));
  print_losses(out, run, schedule, /*validation=*/false);
  row(out, "validation loss", header("rel. diff."));
  print_losses(out, run, schedule, /*validation=*/true);
  if (const auto largest = max_relative_difference(run)) {
    row(out, "largest at any step", {"", "", scientific(*largest)});
  }

  row(out, "cost of a warm step", header("ratio"));
  if (rates.size() == 2) {
    speeds.push_back(text(rates[1] / rates[0], 2));
    bytes.push_back(text(sizes[1] / sizes[0], 2));
  }
  row(out, "  tokens a second", speeds);
  row(out, "  peak memory, MB", bytes);

  if (compiled != nullptr) {
    const auto seconds = compiled->compile_seconds();
    out << "compiling took "
        << (seconds ? text(*seconds, 2) + " s" : "? (too few steps to tell)")
        << "; graphs " << counters.graphs << ", compiles " << counters.compiles
        << ", traces " << counters.traces << ", shadow runs "
        << counters.shadow_runs << ", admissions " << counters.admissions
        << "\ncalls " << counters.calls << ", of these from a program "
        << counters.program_calls << ", eager " << counters.eager_total()
        << "; backward passes from a program " << counters.program_backwards
        << '\n';
    for (const auto& [reason, count] : counters.eager_calls) {
      out << "  eager " << count << " x: " << reason << '\n';
    }
  }
}

json to_json(
    const TrainingRun& run,
    const Options& options,
    const temper::Counters& counters) {
  json out = {
      {"options", identity(options)},
      {"steps", run.step},
      {"max_rel_loss_diff", or_null(max_relative_difference(run))},
      {"compile_s", nullptr},
      {"ratio", nullptr},
      {"counters", counters_json(counters)},
      {"tokens_per_s", {{"eager", nullptr}, {"compiled", nullptr}}},
      {"peak_bytes", {{"eager", nullptr}, {"compiled", nullptr}}},
      {"losses", {{"eager", nullptr}, {"compiled", nullptr}}}};
  json validation = {
      {"steps", run.validation_steps},
      {"eager", nullptr},
      {"compiled", nullptr}};
  std::vector<double> rates;
  for (const auto& trainer : run.trainers) {
    const std::string& name = trainer->name();
    const auto rate = tokens_per_second(*trainer, options);
    if (rate) {
      rates.push_back(*rate);
    }
    out["tokens_per_s"][name] = or_null(rate);
    out["peak_bytes"][name] = or_null(trainer->step_bytes());
    out["losses"][name] = trainer->losses;
    validation[name] = trainer->validation;
    if (trainer->compiled()) {
      out["compile_s"] = or_null(trainer->compile_seconds());
    }
  }
  if (rates.size() == 2) {
    out["ratio"] = rates[1] / rates[0];
  }
  out["losses"]["validation"] = validation;
  return out;
}

} // namespace char_gpt
