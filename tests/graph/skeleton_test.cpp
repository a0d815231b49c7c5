// What makes two graphs one skeleton and what does not.
#include "graph/skeleton.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "graph/equal.h"
#include "graph/numbering.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "random_graph.h"
#include "texts.h"

namespace temper::graph {
namespace {

struct Change {
  std::string_view text;
  const char* from;
  const char* to;
};

bool same_after(const Change& change) {
  const Graph changed = parse(replaced(change.text, change.from, change.to));
  return same_skeleton(skeleton(parse(change.text)), skeleton(changed));
}

TEST(Skeleton, HasNoNamesNoHintsAndNoSlotValues) {
  const std::vector<Change> changes = {
      {kJointText, "\"x\"", "\"y\""},
      {kJointText, "\"fc.weight\"", "\"layers.7.weight\""},
      {kJointText, "\"default\"", "\"mine\""},
      // Other sizes of arguments, and what follows from them.
      {kJointText, "$0=8", "$0=16"},
      {kJointText, "?8", "?16"},
      {kJointText, "slot $0 = 8", "slot $0 = 16"},
      {kJointText, "slot $1 = 0.5", "slot $1 = 0.75"},
      // One model's parameter is another's buffer, field or capture.
      {kJointText, "parameter", "buffer"},
      {kJointText, "parameter", "field"},
      {kJointText, "parameter", "captured"},
      // Numbers are the recorder's own affair.
      {kRawText, "@12", "@3"},
      {kRawText, "slot $1 = 2", "slot $1 = 5"},
  };
  for (const Change& change : changes) {
    EXPECT_TRUE(same_after(change)) << change.from << " -> " << change.to;
  }
}

TEST(Skeleton, HasAllStructure) {
  const std::vector<Change> changes = {
      {kJointText, "%5 : f32[", "%5 : f64["}, // dtype
      {kJointText, "%5 : f32[?8, 32](32, 1)", "%5 : f32[?8, 32](32, 1) conj"},
      {kJointText, "%5 : f32[?8, 32](32, 1)", "%5 : f32[?8, 32](32, 1) neg"},
      {kJointText,
       "%5 : f32[?8, 32](32, 1)",
       "%5 : f32[?8, 32](32, 1) on cuda:0"},
      {kJointText,
       "%5 : f32[?8, 32](32, 1)",
       "%5 : f32[?8, 32](32, 1) on cuda:1"},
      {kJointText, "?8, 32](32, 1)", "?8, 48](48, 1)"}, // a parameter's size
      {kJointText, "$0=8", "1"}, // the pattern of size 1
      {kJointText, "$0=8", "0"},
      {kJointText, "$0=8", "$0=1"},
      {kJointText, "?8", "?0"},
      {kJointText, "$0=8", "?8"}, // what names a size
      {kJointText, "32, 64](64, 1)", "32, 64](1, 32)"}, // stride order
      {kJointText, "32, 64](64, 1)", "32, 64](128, 1)"}, // a gap
      {kJointText, "32, 64](64, 1)", "32, 64](128, 2)"}, // a step
      {kJointText, "32, 64](64, 1)", "32, 64](0, 1)"}, // a broadcast
      {kJointText, "32, 64](64, 1)", "32, 64](1, 1)"}, // an overlap
      {kJointText, "[?8, 32](32, 1) tangent", "[?8, 32, 1](32, 1, 1) tangent"},
      {kJointText, "argument", "parameter"},
      {kJointText, "slot $1 = 0.5", "slot $1 = true"}, // slot kind
      {kJointText, "(%5, $1, #0)", "(%5, 0.5, #0)"}, // slot or constant
      {kJointText, "(%5, $1, #0)", "(%5, $1, none)"},
      {kJointText, "(%5, $1, #0)", "(%6, $1, #0)"}, // operands
      {kJointText, "mul_.Tensor", "div_.Tensor"}, // operator
      {kJointText, "mul_.Tensor", "mul_.Scalar"}, // its overload
      {kJointText, "\"generator\"", "\"stream\""}, // kind of object
      {kJointText, "writes(0 -> %7)", "writes(1 -> %7)"}, // what is written
      {kJointText, "return %7, %5, none", "return %5, %7, none"},
      {kJointText, "return %7, %5, none", "return %7, %5"},
      {kJointText, "mutate input 1 = %1", "mutate input 0 = %1"},
      {kJointText, "mutate input 1 = %1", "mutate input 1 = %4"},
      {kJointText, "mutate input 1 = %1", "mutate input 1 = %1 as output"},
      {kJointText, "\"y\" of output 0", "\"y\" of output 1"},
      {kJointText, "segment tangents(2)", "segment tangents(2, 3)"},
      {kJointText, "deliver input 1 = %11", "deliver input 0 = %11"},
      {kJointText, "deliver input 1 = %11", "deliver output 1 = %11"},
      {kJointText, "deliver input 1 = %11", "deliver input 1 = %9"},
      {kBackwardsText, "segment of 1", "segment"},
      {kBackwardsText, "    deliver input 0 = none\n", ""},
      {kBackwardsText, "deliver input 0 = none", "deliver input 0 = %9"},
      {kBackwardsText, "deliver input 0 = %8", "deliver input 0 = none"},
      {kJointText, "graph functional", "graph raw"},
      {kRawText, "(1) @9", "(1) @7"}, // which share memory
      {kRawText, "(4, 1) @12", "(4, 1) @7"},
      {kRawText, "writes(0[0], 0[1])", "writes(0[0])"},
      {kRawText, "writes(0[0], 0[1])", "writes(0[0], 0[0])"},
      {kRawText, "$[1, 3], 6", "$[1, 3], 7"}, // constants
      {kRawText, "$[1, 3], 6", "$[3, 1], 6"},
      {kRawText, "$[1, 3], 6", "$[1, 1], 6"},
      {kRawText, ", $3, 0)", ", $3, 1)"},
      {kOddText, "1.0, -0.0", "1, -0.0"},
      {kOddText, "1.0, -0.0", "1.0, 0.0"},
      {kOddText, "true, false)", "1, 0)"},
      {kOddText, "str[], float[]", "float[], str[]"},
      {kOddText, "str[], float[]", "str[], []"},
      {kOddText, "(none, [], ", "(none, [none], "},
  };
  for (const Change& change : changes) {
    EXPECT_FALSE(same_after(change)) << change.from << " -> " << change.to;
  }
}

// The skeleton of a graph that only has this input.
std::string text_of_type(const std::string& type) {
  return skeleton(parse(
                      "graph functional { slot $0 = 8 input %0 : " + type +
                      " argument \"x\" return }"))
      .text;
}

TEST(Skeleton, StridesThatMeanNothingDoNotMatter) {
  // Of a dim of size 1, and all of them where there are no elements.
  EXPECT_EQ(
      text_of_type("f32[1, 1, ?4, 5](20, 20, 5, 1)"),
      text_of_type("f32[1, 1, ?4, 5](1, 77, 5, 1)"));
  EXPECT_EQ(text_of_type("f32[0, ?4](4, 1)"), text_of_type("f32[0, ?4](1, 0)"));
  EXPECT_NE(
      text_of_type("f32[1, ?4, 5](20, 5, 1)"),
      text_of_type("f32[1, ?4, 5](20, 1, 4)"));
}

TEST(Skeleton, DevicesAreToldByIndexExceptForTheCpu) {
  EXPECT_NE(
      text_of_type("f32[2](1) on cuda:0"), text_of_type("f32[2](1) on cuda:1"));
  EXPECT_EQ(text_of_type("f32[2](1) on cpu:0"), text_of_type("f32[2](1)"));
}

TEST(Skeleton, StrideOrderIsThatOfAnySize) {
  EXPECT_EQ( // Channels last.
      text_of_type("f32[?2, 3, ?4, ?5](60, 1, 15, 3)"),
      text_of_type("f32[?6, 3, ?7, ?9](189, 1, 27, 3)"));
  EXPECT_EQ( // Every other row.
      text_of_type("f32[?2, ?3](6, 1)"),
      text_of_type("f32[?4, ?5](10, 1)"));
  EXPECT_NE( // A broadcast is no mere overlap.
      text_of_type("f32[?2, 3](0, 1)"),
      text_of_type("f32[?2, 3](1, 1)"));
  EXPECT_NE( // A gap is not where the other has it.
      text_of_type("f32[?2, ?3, ?4](24, 4, 1)"),
      text_of_type("f32[?2, ?3, ?4](24, 8, 1)"));
}

TEST(Skeleton, DoesNotDependOnNumbers) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "RandomGraph(" << seed << ")");
    RandomGraph random(seed);
    const Graph graph = random.make();
    const Graph other = random.renumbered(graph);
    const Skeleton a = skeleton(graph);
    const Skeleton b = skeleton(other);
    // Slots that nothing mentions keep the order they have, kinds included.
    if (a.text.substr(a.text.rfind("slots")) ==
        b.text.substr(b.text.rfind("slots"))) {
      ASSERT_EQ(a.text, b.text) << print(graph) << print(other);
      ASSERT_TRUE(same_skeleton(a, b));
    } else {
      ASSERT_EQ(
          a.text.substr(0, a.text.rfind("slots")),
          b.text.substr(0, b.text.rfind("slots")));
    }
  }
}

TEST(Skeleton, SlotsAreNumberedByFirstAppearance) {
  const Skeleton found = skeleton(parse(R"(graph functional {
    slot $0 = 0.25
    slot $1 = 10
    slot $2 = 20
    slot $3 = 30
    input %0 : f32[$2=20, $1=10](10, 1) argument "x"
    %1 : f32[?20, ?10](10, 1) = aten::add.Scalar(%0, $0, $2)
    return %1
  })"));
  EXPECT_EQ(found.canonical_slot, (std::vector<int32_t>{2, 1, 0, 3}));
  ASSERT_EQ(found.slots.size(), 4U);
  EXPECT_EQ(found.slots[0].toInt(), 20);
  EXPECT_EQ(found.slots[1].toInt(), 10);
  EXPECT_EQ(found.slots[2].toDouble(), 0.25);
  EXPECT_EQ(found.slots[3].toInt(), 30);
}

TEST(Skeleton, TheCanonicalGraphHasTheSameInItsOwnNumbers) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "RandomGraph(" << seed << ")");
    const Graph graph = RandomGraph(seed).make();
    const Graph canonical = canonicalize(graph);
    const Skeleton a = skeleton(graph);
    const Skeleton b = skeleton(canonical);
    ASSERT_EQ(a.text, b.text);
    for (size_t slot = 0; slot < a.slots.size(); ++slot) {
      ASSERT_EQ(b.canonical_slot[slot], static_cast<int32_t>(slot));
      ASSERT_EQ(a.slots[slot].tagKind(), canonical.slots[slot].tagKind());
    }
    ASSERT_TRUE(equal(canonicalize(canonical), canonical));
  }
}

TEST(Skeleton, GraphsThatDifferInNumbersHaveOneCanonicalGraph) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "RandomGraph(" << seed << ")");
    RandomGraph random(seed);
    const Graph graph = random.make();
    Graph a = canonicalize(graph);
    Graph b = canonicalize(random.renumbered(graph));
    // Slots that nothing mentions keep the order they have.
    a.slots.clear();
    b.slots.clear();
    ASSERT_TRUE(equal(a, b)) << print(a) << print(b);
  }
}

TEST(Skeleton, WhatAnOpWritesCountsThoughNothingReadsIt) {
  const std::string text = R"(graph functional {
    input %0 : f32[2](1) buffer "x"
    aten::relu_(%0) writes(0 -> %1 : f32[2](1))
    return
  })";
  EXPECT_FALSE(same_skeleton(
      skeleton(parse(text)),
      skeleton(parse(replaced(text, "%1 : f32", "%1 : f64")))));
}

TEST(Skeleton, ValuesThatNothingMentionsDoNotCount) {
  const std::string more =
      replaced(kJointText, "  %4 : ", "  value %12 : i64[]()\n  %4 : ");
  EXPECT_TRUE(
      same_skeleton(skeleton(parse(kJointText)), skeleton(parse(more))));
  EXPECT_EQ(canonicalize(parse(more)).values.size(), 12U);
}

TEST(Skeleton, TextsAreComparedOnAHashHit) {
  Skeleton a = skeleton(parse(kJointText));
  Skeleton b = a;
  EXPECT_TRUE(same_skeleton(a, b));
  b.text += "x";
  EXPECT_FALSE(same_skeleton(a, b));
  EXPECT_EQ(a.hash, base::hash128(a.text));
}

TEST(Skeleton, ASlotWithoutAScalarIsABug) {
  Graph graph = parse(kJointText);
  graph.slots[0] = "x";
  EXPECT_THROW(skeleton(graph), InternalError);
}

} // namespace
} // namespace temper::graph
