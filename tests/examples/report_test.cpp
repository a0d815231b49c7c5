// The JSON file and the closing table of char_gpt.
#include "char_gpt/report.h"

#include <cmath>
#include <limits>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <temper/temper.h>

#include "small_run.h"

namespace char_gpt {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// The first five steps warm up; a step counts from then on.
constexpr int64_t kSteps = 7;

struct Reported {
  explicit Reported(
      std::initializer_list<const char*> sides = {"eager", "compiled"},
      int64_t steps = kSteps)
      : run(small_run(small_options(), sides)) {
    temper::reset_counters();
    train(run, steps);
    validate(run);
    counters = temper::counters();
  }

  json to_json() const {
    return char_gpt::to_json(run, small_options(), counters);
  }
  std::string table() const {
    std::ostringstream out;
    print_table(
        out, run, small_options(), Schedule::over(kSteps, 1e-2), counters);
    return out.str();
  }

  TrainingRun run;
  temper::Counters counters;
};

std::set<std::string> keys(const json& object) {
  std::set<std::string> result;
  for (const auto& [key, value] : object.items()) {
    result.insert(key);
  }
  return result;
}

using Keys = std::set<std::string>;

TEST(Report, JsonOfBothSidesHasEveryField) {
  const Reported both;
  const json j = both.to_json();
  EXPECT_EQ(
      keys(j),
      (Keys{
          "options",
          "steps",
          "max_rel_loss_diff",
          "compile_s",
          "ratio",
          "counters",
          "tokens_per_s",
          "peak_bytes",
          "losses"}));
  EXPECT_EQ(j["options"], identity(small_options()));
  EXPECT_EQ(j["steps"], kSteps);
  ASSERT_TRUE(j["max_rel_loss_diff"].is_number());
  EXPECT_EQ(j["max_rel_loss_diff"], 0.0);
  ASSERT_TRUE(j["compile_s"].is_number());
  EXPECT_GE(j["compile_s"], 0.0);

  const std::vector<std::string> sides = {"eager", "compiled"};
  for (const char* field : {"tokens_per_s", "peak_bytes"}) {
    EXPECT_EQ(keys(j[field]), (Keys{"eager", "compiled"})) << field;
    for (const std::string& side : sides) {
      ASSERT_TRUE(j[field][side].is_number()) << field;
      EXPECT_GT(j[field][side], 0) << field;
    }
  }
  EXPECT_TRUE(j["peak_bytes"]["eager"].is_number_integer());
  EXPECT_EQ(
      j["ratio"].get<double>(),
      j["tokens_per_s"]["compiled"].get<double>() /
          j["tokens_per_s"]["eager"].get<double>());

  const json& losses = j["losses"];
  EXPECT_EQ(keys(losses), (Keys{"eager", "compiled", "validation"}));
  EXPECT_EQ(keys(losses["validation"]), (Keys{"steps", "eager", "compiled"}));
  EXPECT_EQ(losses["validation"]["steps"], (std::vector{kSteps}));
  for (size_t i = 0; i < sides.size(); ++i) {
    EXPECT_EQ(losses[sides[i]], both.run.trainers[i]->losses);
    EXPECT_EQ(losses[sides[i]].size(), kSteps);
    EXPECT_EQ(losses["validation"][sides[i]], both.run.trainers[i]->validation);
    EXPECT_EQ(losses["validation"][sides[i]].size(), 1);
  }
  // They survive the way through a file.
  EXPECT_EQ(json::parse(j.dump(2)), j);
}

TEST(Report, JsonHasTheCounters) {
  Reported both;
  const temper::Counters& c = both.counters;
  EXPECT_EQ(c.calls, kSteps + 1);
  EXPECT_EQ(c.program_backwards, kSteps - 1);
  both.counters.eager_calls["some reason"] = 3;
  EXPECT_EQ(
      both.to_json()["counters"],
      (json{
          {"calls", c.calls},
          {"program_calls", c.program_calls},
          {"traces", c.traces},
          {"shadow_runs", c.shadow_runs},
          {"admissions", c.admissions},
          {"graphs", c.graphs},
          {"compiles", c.compiles},
          {"program_backwards", c.program_backwards},
          {"eager_calls", {{"some reason", 3}}}}));
}

TEST(Report, OneSideLeavesNulls) {
  for (const std::string side : {"eager", "compiled"}) {
    const std::string other = side == "eager" ? "compiled" : "eager";
    const json j = Reported({side.c_str()}).to_json();
    EXPECT_TRUE(j["max_rel_loss_diff"].is_null()) << side;
    EXPECT_TRUE(j["ratio"].is_null()) << side;
    EXPECT_EQ(j["compile_s"].is_null(), side == "eager");
    for (const char* field : {"tokens_per_s", "peak_bytes", "losses"}) {
      EXPECT_FALSE(j[field][side].is_null()) << field << ' ' << side;
      EXPECT_TRUE(j[field][other].is_null()) << field << ' ' << side;
    }
    EXPECT_TRUE(j["losses"]["validation"][other].is_null()) << side;
  }
}

TEST(Report, TooFewStepsLeaveCostsOut) {
  const Reported both({"eager", "compiled"}, 2);
  const json j = both.to_json();
  for (const char* side : {"eager", "compiled"}) {
    EXPECT_TRUE(j["tokens_per_s"][side].is_null());
    EXPECT_TRUE(j["peak_bytes"][side].is_null());
  }
  EXPECT_TRUE(j["ratio"].is_null());
  EXPECT_TRUE(j["compile_s"].is_null());
  EXPECT_EQ(j["max_rel_loss_diff"], 0.0);
  EXPECT_THAT(both.table(), HasSubstr("too few steps to tell"));
}

// Whether a difference would be seen.
TEST(Report, TheLargestDifferenceIsOfAnyLoss) {
  for (const bool validation : {false, true}) {
    for (const size_t side : {0U, 1U}) {
      Reported both;
      Trainer& trainer = *both.run.trainers[side];
      double& loss = validation ? trainer.validation.back() : trainer.losses[3];
      const double before = loss;
      loss = std::nextafter(before, 100.0);
      const auto least = max_relative_difference(both.run);
      ASSERT_TRUE(least);
      EXPECT_GT(*least, 0);
      EXPECT_LT(*least, 1e-15);

      loss = before * 1.25;
      const double expected = side == 0 ? 0.2 : 0.25; // of eager's
      EXPECT_DOUBLE_EQ(*max_relative_difference(both.run), expected);
      EXPECT_DOUBLE_EQ(both.to_json()["max_rel_loss_diff"], expected);
      EXPECT_THAT(both.table(), ContainsRegex("largest at any step +0.2"));

      loss = std::numeric_limits<double>::quiet_NaN();
      EXPECT_EQ(
          max_relative_difference(both.run),
          std::numeric_limits<double>::infinity());
    }
  }
}

TEST(Report, TableHasAllRows) {
  Reported both;
  both.counters.eager_calls["some reason"] = 3;
  const std::string table = both.table();
  for (const char* row :
       {"training loss +eager +compiled +rel. diff.\n",
        "  step 1, lr [0-9.e-]+ +[0-9.]+ +[0-9.]+ +0\n",
        "  step 7, lr [0-9.e-]+ +[0-9.]+ +[0-9.]+ +0\n",
        "validation loss +eager +compiled +rel. diff.\n",
        "  step 7 +[0-9.]+ +[0-9.]+ +0\n",
        "largest at any step +0\n",
        "cost of a warm step +eager +compiled +ratio\n",
        "  tokens a second +[0-9]+ +[0-9]+ +[0-9.]+\n",
        "  peak memory, MB +[0-9.]+ +[0-9.]+ +[0-9.]+\n",
        "compiling took [0-9.]+ s; graphs [0-9]+, compiles [0-9]+, traces "
        "[0-9]+, shadow runs [0-9]+, admissions [0-9]+\n",
        "calls 8, of these from a program [0-9]+, eager 3; backward passes "
        "from a program 6\n",
        "  eager 3 x: some reason\n"}) {
    EXPECT_THAT(table, ContainsRegex(row));
  }
  const std::string one = Reported({"eager"}).table();
  EXPECT_THAT(one, ContainsRegex("training loss +eager\n"));
  EXPECT_THAT(one, Not(HasSubstr("compil")));
  EXPECT_THAT(one, Not(HasSubstr("ratio")));
}

} // namespace
} // namespace char_gpt
