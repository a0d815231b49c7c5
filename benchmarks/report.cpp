// Columns, and the fields of a row.
#include "report.h"

#include <iomanip>
#include <sstream>
#include <stdexcept>

namespace bench {

namespace {

struct Column {
  const char* title;
  int width;
};
constexpr Column kNames[] = {{"suite", 9}, {"model", 17}, {"mode", 6}};
constexpr Column kNumbers[] = {
    {"thr", 3},
    {"temper us", 11},
    {"eager us", 10},
    {"ratio", 7},
    {"min temper", 11},
    {"min eager", 10},
    {"ratio", 7},
    {"rounds", 7}};

std::string fixed(double value, int digits) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(digits) << value;
  return out.str();
}

} // namespace

const char* name_of(Mode mode) {
  switch (mode) {
    case Mode::kInfer:
      return "infer";
    case Mode::kTrain:
      return "train";
    case Mode::kOpt:
      break;
  }
  return "opt";
}

Row make_row(
    const std::string& suite,
    const std::string& model,
    Mode mode,
    const std::vector<Samples>& samples) {
  Row row;
  row.suite = suite;
  row.model = model;
  row.mode = mode;
  row.temper = samples.at(0);
  row.peer = samples.at(1);
  row.counters = temper::counters();
  return row;
}

void require(const Row& row, bool holds, const std::string& expected) {
  if (!holds) {
    throw std::runtime_error(
        row.suite + ' ' + row.model + ' ' + name_of(row.mode) +
        ": the calls are not what is to be measured; expected " + expected +
        ", found " + to_json(row)["counters"].dump());
  }
}

void require_programs(const Row& row) {
  const temper::Counters& counters = row.counters;
  require(
      row,
      counters.eager_total() == 0 && counters.program_calls > 0 &&
          counters.program_calls + counters.traces == counters.calls &&
          counters.traces <= 1,
      "calls by program after the first");
}

std::string microseconds(double us) {
  return fixed(us, us < 10 ? 2 : (us < 100 ? 1 : 0));
}

void print_header(std::ostream& out) {
  for (const auto& column : kNames) {
    out << std::left << std::setw(column.width) << column.title;
  }
  for (const auto& column : kNumbers) {
    out << std::right << std::setw(column.width) << column.title;
  }
  out << '\n' << std::flush;
}

void print(std::ostream& out, const Row& row) {
  const double least_temper = minimum(row.temper);
  const double least_peer = minimum(row.peer);
  const std::string names[] = {row.suite, row.model, name_of(row.mode)};
  const std::string numbers[] = {
      std::to_string(row.threads),
      microseconds(median(row.temper)),
      microseconds(median(row.peer)),
      fixed(median_ratio(row.peer, row.temper), 3),
      microseconds(least_temper),
      microseconds(least_peer),
      fixed(least_peer / least_temper, 3),
      std::to_string(row.temper.size())};
  for (size_t i = 0; i < std::size(names); ++i) {
    out << std::left << std::setw(kNames[i].width) << names[i];
  }
  for (size_t i = 0; i < std::size(numbers); ++i) {
    out << std::right << std::setw(kNumbers[i].width) << numbers[i];
  }
  if (!row.note.empty()) {
    out << "  " << row.note;
  }
  out << '\n';
  for (const auto& [reason, count] : row.counters.eager_calls) {
    out << "    eager " << count << " x: " << reason << '\n';
  }
  out << std::flush;
}

nlohmann::json to_json(const Row& row) {
  const auto& c = row.counters;
  nlohmann::json json = {
      {"suite", row.suite},
      {"model", row.model},
      {"mode", name_of(row.mode)},
      {"threads", row.threads},
      {"peer", "eager"},
      {"us_temper", median(row.temper)},
      {"us_peer", median(row.peer)},
      {"ratio", median(row.peer) / median(row.temper)},
      {"ratio_of_rounds", median_ratio(row.peer, row.temper)},
      {"min_us_temper", minimum(row.temper)},
      {"min_us_peer", minimum(row.peer)},
      {"rounds", row.temper.size()},
      {"counters",
       {{"calls", c.calls},
        {"program_calls", c.program_calls},
        {"traces", c.traces},
        {"shadow_runs", c.shadow_runs},
        {"admissions", c.admissions},
        {"graphs", c.graphs},
        {"compiles", c.compiles},
        {"program_backwards", c.program_backwards},
        {"eager_calls", c.eager_calls}}}};
  json.update(row.extra);
  return json;
}

} // namespace bench
