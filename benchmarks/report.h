// Rows of measurements: the table and the JSON file.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>
#include <temper/counters.h>

#include "interleave.h"

namespace bench {

enum class Mode { kInfer, kTrain, kOpt };

/// "infer", "train", or "opt" (a step of an optimizer).
const char* name_of(Mode mode);

/// One measurement of temper against eager LibTorch.
struct Row {
  std::string suite;
  std::string model;
  Mode mode = Mode::kInfer;
  int threads = at::get_num_threads();
  Samples temper; ///< By round.
  Samples peer; ///< By round: eager.
  temper::Counters counters; ///< Of warm-up and rounds together.
  nlohmann::json extra = nlohmann::json::object(); ///< Further fields.
  std::string note; ///< For people, behind the row.
};

/// A row with the counters as they are now. `samples`: temper's, then eager's.
Row make_row(
    const std::string& suite,
    const std::string& model,
    Mode mode,
    const std::vector<Samples>& samples);

/// Throws unless the row's calls were what it is to measure, as the counters
/// tell: `expected` says what that is.
void require(const Row& row, bool holds, const std::string& expected);
/// `require`, of admitted calls: by program, but for the one that is traced.
void require_programs(const Row& row);

void print_header(std::ostream& out);
void print(std::ostream& out, const Row& row);

/// The row as an object. `us_temper` and `us_peer` are medians, `ratio` is peer
/// / temper of these: above 1, temper is faster. `ratio_of_rounds` is the
/// median of the rounds' ratios, in which a drift of the machine's speed
/// cancels out.
nlohmann::json to_json(const Row& row);

/// Microseconds with three digits or so: "0.93", "12.4", "1234".
std::string microseconds(double us);

} // namespace bench
