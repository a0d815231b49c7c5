// What the partition saves, and for what reason.
#include "passes/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "graph/build.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verifier.h"
#include "passes/simplify.h"

namespace temper::passes {
namespace {

using Kind = SavedValue::Kind;

Partition split(const std::string& text, const PartitionOptions& options = {}) {
  const graph::Graph joint = graph::parse(text);
  graph::verify(joint);
  Partition result = partition(joint, options);
  graph::verify(result.forward);
  for (const SegmentGraph& segment : result.segments) {
    graph::verify(segment.graph);
  }
  return result;
}

int count(const graph::Graph& graph, const std::string& name) {
  return static_cast<int>(std::count_if(
      graph.ops.begin(), graph.ops.end(), [&](const graph::Op& op) {
        return graph::op_name(op.op) == name;
      }));
}

TEST(Partition, SavesAnInputOnceAndTakesItsViewsAgain) {
  const Partition p = split(R"(graph functional {
  input %0 : f32[?8, ?4](4, 1) argument "x"
  input %1 : f32[?4, ?4](4, 1) parameter "w"
  input %2 : f32[?8, ?4](4, 1) tangent "y" of output 0
  %3 : f32[?4, ?4](1, 4) = aten::t(%1)
  %4 : f32[?8, ?4](4, 1) = aten::mm(%0, %3)
  return %4
  segment tangents(2) {
    %5 : f32[?4, ?4](4, 1) = aten::t(%3)
    %6 : f32[?8, ?4](4, 1) = aten::mm(%2, %5)
    %7 : f32[?8, ?4](4, 1) = aten::mm(%2, %1)
    deliver input 0 = %6
    deliver input 0 = %7
  }
}
)");
  ASSERT_EQ(p.saved.size(), 1);
  EXPECT_EQ(p.saved[0].kind, Kind::kInput);
  EXPECT_EQ(p.saved[0].index, 1);
  EXPECT_EQ(count(p.segments[0].graph, "aten::t"), 2);
}

TEST(Partition, SavesABaseOnceForTwoOfItsViews) {
  const Partition p = split(R"(graph functional {
  slot $0 = 2
  input %0 : f32[?4, ?4](4, 1) argument "x"
  input %1 : f32[](  ) tangent "y" of output 0
  %2 : f32[?4, ?4](4, 1) = aten::exp(%0)
  %3 : f32[?2, ?4](4, 1), %4 : f32[?2, ?4](4, 1) = aten::split.Tensor(%2, $0, 0)
  %5 : f32[?2, ?4](4, 1) = aten::add.Tensor(%3, %4, $0)
  %6 : f32[]() = aten::sum(%5, none)
  return %6
  segment tangents(1) {
    %7 : f32[?2, ?4](4, 1) = aten::mul.Tensor(%1, %3)
    %8 : f32[?2, ?4](4, 1) = aten::mul.Tensor(%7, %4)
    deliver input 0 = %8
  }
}
)");
  ASSERT_EQ(p.saved.size(), 1);
  EXPECT_EQ(p.saved[0].kind, Kind::kPrivate);
  EXPECT_EQ(p.saved[0].shares_output, -1);
  EXPECT_EQ(p.forward.outputs.back(), 2);
  EXPECT_EQ(count(p.segments[0].graph, "aten::split.Tensor"), 1);
}

constexpr const char* kChain = R"(graph functional {
  input %0 : f32[?4, ?4](4, 1) argument "x"
  input %1 : f32[?4, ?4](4, 1) tangent "y" of output 0
  %2 : f32[?4, ?4](4, 1) = aten::mm(%0, %0)
  %3 : f32[?4, ?4](4, 1) = aten::exp(%2)
  %4 : f32[?4, ?4](4, 1) = aten::sin(%2)
  %5 : f32[?4, ?4](4, 1) = aten::mul.Tensor(%3, %4)
  return %5
  segment tangents(1) {
    %6 : f32[?4, ?4](4, 1) = aten::mul.Tensor(%1, %3)
    %7 : f32[?4, ?4](4, 1) = aten::mul.Tensor(%6, %4)
    deliver input 0 = %7
  }
}
)";

TEST(Partition, RecomputesCheapOpsOnlyIfAsked) {
  const Partition kept = split(kChain);
  EXPECT_EQ(kept.saved.size(), 2);
  EXPECT_EQ(count(kept.segments[0].graph, "aten::exp"), 0);
  const Partition recomputed = split(kChain, {.recompute_cheap = true});
  ASSERT_EQ(recomputed.saved.size(), 1);
  EXPECT_EQ(recomputed.forward.outputs.back(), 2); // the product
  EXPECT_EQ(count(recomputed.segments[0].graph, "aten::exp"), 1);
  EXPECT_EQ(count(recomputed.segments[0].graph, "aten::sin"), 1);
  EXPECT_EQ(count(recomputed.segments[0].graph, "aten::mm"), 0);
}

TEST(Partition, NeverReadsAnInputThatEagersBackwardDidNot) {
  // exp(x) could be had from x, but x may change before the backward.
  const Partition p = split(
      R"(graph functional {
  input %0 : f32[?4, ?4](4, 1) argument "x"
  input %1 : f32[?4, ?4](4, 1) tangent "y" of output 0
  %2 : f32[?4, ?4](4, 1) = aten::exp(%0)
  %3 : f32[?4, ?4](4, 1) = aten::sin(%2)
  return %3
  segment tangents(1) {
    %4 : f32[?4, ?4](4, 1) = aten::mul.Tensor(%1, %2)
    deliver input 0 = %4
  }
}
)",
      {.recompute_cheap = true});
  ASSERT_EQ(p.saved.size(), 1);
  EXPECT_EQ(p.saved[0].kind, Kind::kPrivate);
  EXPECT_EQ(p.forward.outputs.back(), 2);
}

TEST(Partition, TellsWhichOutputSharesAPrivateValuesMemory) {
  const Partition p = split(R"(graph functional {
  slot $0 = 16
  input %0 : f32[?4, ?4](4, 1) argument "x"
  input %1 : f32[?16](1) tangent "y" of output 0
  %2 : f32[?4, ?4](4, 1) = aten::exp(%0)
  %3 : f32[?16](1) = aten::view(%2, $[0])
  return %3
  segment tangents(1) {
    %4 : f32[?4, ?4](4, 1) = aten::mul.Tensor(%2, %2)
    deliver input 0 = %4
  }
}
)");
  ASSERT_EQ(p.saved.size(), 1);
  EXPECT_EQ(p.saved[0].kind, Kind::kPrivate);
  EXPECT_EQ(p.saved[0].shares_output, 0);
}

TEST(Partition, SavesAnOutputAsThatOutput) {
  const Partition p = split(R"(graph functional {
  slot $0 = 16
  input %0 : f32[?4, ?4](4, 1) argument "x"
  input %1 : f32[?4, ?4](4, 1) tangent "y" of output 0
  %2 : f32[?4, ?4](4, 1) = aten::exp(%0)
  return %2
  segment tangents(1) {
    %3 : f32[?16](1) = aten::view(%2, $[0])
    %4 : f32[?16](1) = aten::mul.Tensor(%3, %3)
    deliver input 0 = %4
    deliver input 0 = %1
  }
}
)");
  ASSERT_EQ(p.saved.size(), 1);
  EXPECT_EQ(p.saved[0].kind, Kind::kOutput);
  EXPECT_EQ(p.saved[0].index, 0);
  EXPECT_EQ(p.forward.outputs.size(), 1);
}

TEST(Partition, SavesTheFinalContentByReferenceAndAnOlderOneAsACopy) {
  const std::string head = R"(graph functional {
  slot $0 = 2.0
  input %0 : f32[?4](1) buffer "b"
  input %1 : f32[?4](1) tangent "y" of output 0
  %2 : f32[?4](1) = aten::mul_.Scalar(%0, $0) writes(0 -> %2)
  %3 : f32[?4](1) = aten::exp(%2)
  return %3
  mutate input 0 = %2
  segment tangents(1) {
)";
  const Partition newer = split(head + R"(
    %4 : f32[?4](1) = aten::mul.Tensor(%1, %2)
    deliver input 0 = %4
  }
}
)");
  ASSERT_EQ(newer.saved.size(), 1);
  EXPECT_EQ(newer.saved[0].kind, Kind::kInput);
  EXPECT_EQ(count(newer.forward, "temper::copy_memory"), 0);
  const Partition older = split(head + R"(
    %4 : f32[?4](1) = aten::mul.Tensor(%1, %0)
    deliver input 0 = %4
  }
}
)");
  ASSERT_EQ(older.saved.size(), 1);
  EXPECT_EQ(older.saved[0].kind, Kind::kPrivate);
  EXPECT_EQ(count(older.forward, "temper::copy_memory"), 1);
  EXPECT_EQ(graph::op_name(older.forward.ops[0].op), "temper::copy_memory");
}

TEST(Partition, NeverRepeatsRandomNumbers) {
  const Partition p = split(
      R"(graph functional {
  input %0 : f32[?4](1) argument "x"
  input %1 : f32[?4](1) tangent "y" of output 0
  %2 : f32[?4](1) = aten::rand_like(%0, none, none, none, none, none)
  %3 : f32[?4](1) = aten::mul.Tensor(%0, %2)
  return %3
  segment tangents(1) {
    %4 : f32[?4](1) = aten::mul.Tensor(%1, %2)
    deliver input 0 = %4
  }
}
)",
      {.recompute_cheap = true});
  ASSERT_EQ(p.saved.size(), 1);
  EXPECT_EQ(p.forward.outputs.back(), 2);
  EXPECT_EQ(count(p.segments[0].graph, "aten::rand_like"), 0);
}

TEST(Simplify, DropsDeadCodeButNoEffects) {
  const graph::Graph g = simplify(graph::parse(R"(graph functional {
  input %0 : f32[?4](1) argument "x"
  %1 : f32[?4](1) = aten::exp(%0)
  %2 : f32[?4](1) = aten::rand_like(%1, none, none, none, none, none)
  %3 : f32[?4](1) = aten::sin(%0)
  %4 : f32[?4](1) = aten::detach(%0)
  %5 : f32[?4](1) = aten::cos(%4)
  %6 : f32[?4](1) = aten::detach(%5)
  return %6
}
)"));
  graph::verify(g);
  EXPECT_EQ(count(g, "aten::exp"), 1); // the random numbers' sizes
  EXPECT_EQ(count(g, "aten::rand_like"), 1);
  EXPECT_EQ(count(g, "aten::sin"), 0);
  EXPECT_EQ(count(g, "aten::detach"), 1); // the one that is returned
  EXPECT_EQ(g.num_forward_ops, 4);
}

} // namespace
} // namespace temper::passes
