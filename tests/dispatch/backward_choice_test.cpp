// Which recorded backward one is that has begun.
#include "dispatch/backward_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace temper::dispatch {
namespace {

using Asked = Arriving::Asked;

constexpr int32_t kNone = -1;

struct Case {
  std::string name;
  Arriving arriving;
  int32_t backward = kNone;
  std::vector<bool> ignored;
};

// Outputs "a", which is computed from input x, and "b", from x and w.
struct BackwardChoiceTest : testing::Test {
  BackwardChoiceTest() {
    plan.autograd.outputs = {{0, 0}, {1, 0}};
    plan.autograd.inputs = {0, 1};
    plan.autograd.reach = {{{true, false}, {}, {}}, {{true, true}, {}, {}}};
  }
  // Of the first step, without autocast.
  int32_t record(std::vector<bool> tangents, std::vector<bool> needed) {
    capture::RecordedBackward backward;
    backward.pattern.tangents = std::move(tangents);
    backward.pattern.needed = std::move(needed);
    plan.backwards.push_back(std::move(backward));
    plan.chain.runs.emplace_back().delivers = {false, false};
    return static_cast<int32_t>(plan.backwards.size()) - 1;
  }
  void expect(const std::vector<Case>& cases) const {
    for (const Case& each : cases) {
      SCOPED_TRACE(each.name);
      auto arriving = each.arriving;
      arriving.arrived.resize(arriving.gradients.size());
      const auto choice = choose_backward(plan, arriving);
      EXPECT_EQ(choice ? choice->backward : kNone, each.backward);
      if (choice) {
        EXPECT_EQ(choice->ignored, each.ignored);
      }
    }
  }
  Plan plan;
};

constexpr auto kYes = Asked::kYes;
constexpr auto kNo = Asked::kNo;
constexpr auto kHasNone = Asked::kHasNone;

TEST_F(BackwardChoiceTest, WithoutARecordedOneThereIsNone) {
  expect({{"both", {0, {true, true}, {kYes, kYes}, 0}, kNone, {}}});
}

TEST_F(BackwardChoiceTest, ByGradientsAndByWhatIsAskedFor) {
  const auto a = record({true, false}, {true, false});
  const auto both = record({true, true}, {true, true});
  const auto only_w = record({false, true}, {false, true});
  expect({
      {"both", {0, {true, true}, {kYes, kYes}, 0}, both, {false, false}},
      // Nothing of w comes of `a`: whether it is asked for is no matter.
      {"a", {0, {true, false}, {kYes, kYes}, 0}, a, {false, false}},
      {"a, x alone", {0, {true, false}, {kYes, kNo}, 0}, a, {false, false}},
      {"a, nothing", {0, {true, false}, {kNo, kNo}, 0}, kNone, {}},
      {"b", {0, {false, true}, {kYes, kYes}, 0}, kNone, {}},
      {"b, w alone",
       {0, {false, true}, {kNo, kYes}, 0},
       only_w,
       {false, false}},
      // The gradient of `a` leads to x alone, which nobody asks for.
      {"both, w alone",
       {0, {true, true}, {kNo, kYes}, 0},
       only_w,
       {true, false}},
      {"both, x alone", {0, {true, true}, {kYes, kNo}, 0}, kNone, {}},
      {"nothing comes", {0, {false, false}, {kYes, kYes}, 0}, kNone, {}},
      {"a later step", {1, {true, true}, {kYes, kYes}, 0}, kNone, {}},
      {"autocast", {0, {true, true}, {kYes, kYes}, 5}, kNone, {}},
  });
}

// An input that takes no gradient at this call fits either way; the backward
// that takes in most is closest to what eager does.
TEST_F(BackwardChoiceTest, MostGradientsWinWhereSeveralAgree) {
  const auto only_w = record({false, true}, {false, true});
  const auto both = record({true, true}, {true, true});
  const auto again = record({true, true}, {true, true});
  EXPECT_NE(both, again);
  expect({
      {"both", {0, {true, true}, {kHasNone, kYes}, 0}, both, {false, false}},
      {"b", {0, {false, true}, {kHasNone, kYes}, 0}, only_w, {false, false}},
      {"neither takes one",
       {0, {true, true}, {kHasNone, kHasNone}, 0},
       both,
       {false, false}},
  });
}

// A gradient that the backward itself sends to an output need not come from
// outside.
TEST_F(BackwardChoiceTest, WhatTheBackwardDeliversNeedNotCome) {
  const auto a = record({true, false}, {true, false});
  const auto inside = record({true, true}, {true, true});
  expect({{"before", {0, {true, false}, {kYes, kYes}, 0}, a, {false, false}}});
  plan.chain.runs[static_cast<size_t>(inside)].delivers = {false, true};
  expect({
      {"a", {0, {true, false}, {kYes, kYes}, 0}, inside, {false, false}},
      {"both", {0, {true, true}, {kYes, kYes}, 0}, inside, {false, false}},
      {"b", {0, {false, true}, {kYes, kYes}, 0}, kNone, {}},
      {"a, x alone", {0, {true, false}, {kYes, kNo}, 0}, a, {false, false}},
  });
}

} // namespace
} // namespace temper::dispatch
