// Unification of two graphs.
#include "graph/unify.h"

#include <gmock/gmock.h>

#include <string>

#include "graph/constant.h"
#include "graph/parser.h"
#include "graph/skeleton.h"
#include "random_graph.h"
#include "texts.h"

namespace temper::graph {
namespace {

using testing::HasSubstr;

TEST(Unify, GivesTheSlotsOfTheOtherInOnesOwnNumbers) {
  const Graph a = parse(R"(graph functional {
    slot $0 = 8
    slot $1 = 0.5
    input %0 : f32[$0=8](1) argument "x"
    %1 : f32[?8](1) = aten::mul.Scalar(%0, $1)
    return %1
  })");
  const Graph b = parse(R"(graph functional {
    slot $0 = 0.75
    slot $1 = 12
    input %1 : f32[$1=12](1) argument "y"
    %0 : f32[?12](1) = aten::mul.Scalar(%1, $0)
    return %0
  })");
  std::string why;
  const auto found = unify(a, b, &why);
  ASSERT_TRUE(found.has_value()) << why;
  ASSERT_EQ(found->slots.size(), 2U);
  EXPECT_EQ(found->slots[0].toInt(), 12);
  EXPECT_EQ(found->slots[1].toDouble(), 0.75);
  EXPECT_EQ(found->b_slot, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(found->a_slot, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(why, "");
}

TEST(Unify, TheTwoMapsAreInverse) {
  int unified = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "RandomGraph(" << seed << ")");
    RandomGraph random(seed);
    const Graph a = random.make();
    const Graph b = random.renumbered(a);
    const auto found = unify(a, b);
    ASSERT_EQ(found.has_value(), same_skeleton(skeleton(a), skeleton(b)));
    if (!found) {
      continue;
    }
    ++unified;
    for (size_t slot = 0; slot < a.slots.size(); ++slot) {
      const auto other = static_cast<size_t>(found->b_slot[slot]);
      ASSERT_EQ(found->a_slot[other], static_cast<int32_t>(slot));
      ASSERT_TRUE(same_constant(found->slots[slot], b.slots[other]));
    }
  }
  EXPECT_GT(unified, 100);
}

std::string difference(const std::string& from, const std::string& to) {
  std::string why;
  const auto found =
      unify(parse(kJointText), parse(replaced(kJointText, from, to)), &why);
  EXPECT_FALSE(found.has_value());
  return why;
}

TEST(Unify, NamesTheFirstDifference) {
  EXPECT_EQ(
      difference("aten::mm(%0, %4)", "aten::matmul(%0, %4)"),
      "op 1 differs: `%5 : f32[?8, 32](32, 1) = aten::mm(%0, %4)` and "
      "`%5 : f32[?8, 32](32, 1) = aten::matmul(%0, %4)`");
  EXPECT_THAT(
      difference("32, 64](64, 1) parameter", "32, 64](1, 32) parameter"),
      "input 1 differs: `fc.weight : f32[32, 64](64, 1) parameter` and "
      "`fc.weight : f32[32, 64](1, 32) parameter`");
  EXPECT_EQ(
      difference("\"generator\"", "\"stream\""),
      "object 0 differs: `generator` and `stream`");
  EXPECT_EQ(
      difference("return %7, %5, none", "return %7"),
      "the graph differs: `outputs %7 %5 -` and `outputs %7`");
  EXPECT_THAT(
      difference("graph functional", "graph raw"),
      HasSubstr("the form differs: `temper skeleton 1 functional` and"));
  EXPECT_EQ(
      difference("slot $1 = 0.5", "slot $1 = true"),
      "the graph differs: `slots if` and `slots ib`");
}

TEST(Unify, NamesAnOpThatOneSideLacks) {
  const std::string why =
      difference("  return", "  aten::mm(%5, %5)\n  return");
  EXPECT_THAT(why, HasSubstr("op 4 differs: `%8 : f32[?8, 32](32, 1) = "));
  EXPECT_THAT(why, HasSubstr("and `aten::mm(%5, %5)`"));
}

TEST(Unify, NamesTheEndOfOneSide) {
  std::string why;
  const Graph one = parse("graph raw { return }");
  const Graph two = parse("graph raw { aten::mm(1, 2) return }");
  EXPECT_FALSE(unify(one, two, &why));
  EXPECT_THAT(why, HasSubstr("stands against op 0 `aten::mm(1, 2)`"));
  EXPECT_FALSE(unify(one, two));
}

} // namespace
} // namespace temper::graph
