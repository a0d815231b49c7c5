// Backwards that move from one trace to another.
#include "capture/joint.h"

#include <gtest/gtest.h>

#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verifier.h"

namespace temper::capture {
namespace {

// A trace of a raw graph in text: all inputs but tangents are arguments.
Trace trace_of(std::string_view text) {
  Trace trace;
  trace.graph = graph::parse(text);
  auto& graph = trace.graph;
  int32_t arguments = 0;
  size_t forward_inputs = 0;
  for (const auto& input : graph.inputs) {
    const bool tangent = input.role == graph::Role::kTangent;
    trace.bindings.push_back({tangent ? -1 : arguments++, nullptr});
    forward_inputs += tangent ? 0 : 1;
  }
  for (const auto& value : graph.values) {
    trace.values.push_back({0, value.storage, {}});
    trace.storages.resize(std::max(
        trace.storages.size(), static_cast<size_t>(value.storage) + 1));
  }
  for (const auto& op : graph.ops) {
    OpRecord record;
    record.info = &op_info(op.op);
    trace.ops.push_back(record);
  }
  // In these texts values, inputs and storages of the forward come first.
  size_t last = 0;
  for (size_t i = 0; i < forward_inputs; ++i) {
    last = std::max(last, static_cast<size_t>(graph.inputs[i].value));
  }
  for (int32_t i = 0; i < graph.num_forward_ops; ++i) {
    for (const auto id : graph.ops[static_cast<size_t>(i)].results) {
      last = std::max(last, static_cast<size_t>(id));
    }
  }
  size_t slots = 0;
  for (int32_t i = 0; i < graph.num_forward_ops; ++i) {
    for (const auto& operand : graph.ops[static_cast<size_t>(i)].operands) {
      slots += operand.slots.size();
    }
  }
  trace.forward = {last + 1, last + 1, forward_inputs, 0, slots};
  return trace;
}

constexpr std::string_view kFirst = R"(graph raw {
  slot $0 = 2.5
  slot $1 = 3.5
  input %0 : f32[8](1) @0 argument "x"
  %1 : f32[8](1) @1 = aten::exp(%0)
  %2 : f32[8](1) @2 = aten::mul.Scalar(%1, $0)
  return %2, %1
  input %3 : f32[8](1) @3 tangent "y" of output 0
  segment tangents(1) {
    %4 : f32[8](1) @4 = aten::mul.Scalar(%3, $1)
    %5 : f32[8](1) @5 = aten::mul.Tensor(%4, %1)
    deliver input 0 = %5
  }
}
)";

// Inputs are printed first: moves the tangent's line up.
std::string with_tangent_first(std::string_view text) {
  std::string result(text);
  const auto begin = result.find("  input %3");
  if (begin == std::string::npos) {
    return result;
  }
  const auto end = result.find('\n', begin) + 1;
  const auto line = result.substr(begin, end - begin);
  result.erase(begin, end - begin);
  result.insert(result.find("  %1 :"), line);
  return result;
}

RecordedBackward first_backward() {
  RecordedBackward backward;
  backward.step_segments = {0, 1};
  return backward;
}

TEST(Joint, TheForwardPartHasNothingOfTheBackward) {
  const auto trace = trace_of(with_tangent_first(kFirst));
  const auto forward = forward_part(trace);
  EXPECT_EQ(forward.graph.ops.size(), 2U);
  EXPECT_EQ(forward.graph.inputs.size(), 1U);
  EXPECT_EQ(forward.graph.values.size(), 3U);
  EXPECT_EQ(forward.graph.slots.size(), 1U);
  EXPECT_TRUE(forward.graph.segments.empty());
  EXPECT_TRUE(forward.graph.tangent_outputs.empty());
  EXPECT_NO_THROW(graph::verify(forward.graph));
}

TEST(Joint, AForwardWithItsBackwardIsTheTraceAgain) {
  const auto trace = trace_of(with_tangent_first(kFirst));
  auto joint = forward_part(trace);
  auto backward = first_backward();
  ASSERT_TRUE(append_backward(joint, trace, backward));
  EXPECT_EQ(graph::print(joint.graph), graph::print(trace.graph));
  EXPECT_EQ(backward.step_segments, first_backward().step_segments);
}

TEST(Joint, ASecondBackwardIsAnAlternative) {
  const auto trace = trace_of(with_tangent_first(kFirst));
  auto joint = trace;
  auto backward = first_backward();
  ASSERT_TRUE(append_backward(joint, trace, backward));
  EXPECT_EQ(backward.step_segments, (std::vector<int32_t>{1, 2}));
  ASSERT_EQ(joint.graph.segments.size(), 2U);
  EXPECT_EQ(joint.graph.segments[1].backward, 1);
  EXPECT_EQ(joint.graph.inputs.size(), 3U);
  EXPECT_EQ(joint.graph.slots.size(), 3U);
  EXPECT_DOUBLE_EQ(joint.graph.slots[2].toDouble(), 3.5);
  EXPECT_EQ(joint.graph.tangent_outputs, (std::vector<int32_t>{0, 0}));
  EXPECT_NO_THROW(graph::verify(joint.graph));
}

TEST(Joint, ForwardsAreComparedInEveryField) {
  const auto trace = trace_of(with_tangent_first(kFirst));
  EXPECT_TRUE(same_forward(trace, trace));
  auto other = trace;
  other.graph.slots[1] = 4.5; // The backward's.
  EXPECT_TRUE(same_forward(trace, other));
  other.graph.slots[0] = 4.5;
  EXPECT_FALSE(same_forward(trace, other));
  other = trace;
  other.bindings[0].argument = 1;
  EXPECT_FALSE(same_forward(trace, other));
  other = trace;
  other.graph.ops[1].operands[0].value = 0;
  EXPECT_FALSE(same_forward(trace, other));
}

TEST(Joint, ABackwardThatWritesToTheForwardsMemoryIsRefused) {
  std::string text = with_tangent_first(kFirst);
  const std::string pure = "%5 : f32[8](1) @5 = aten::mul.Tensor(%4, %1)";
  text.replace(
      text.find(pure),
      pure.size(),
      "%1 = aten::mul_.Tensor(%1, %4) writes(0)\n"
      "    %5 : f32[8](1) @5 = aten::mul.Tensor(%4, %1)");
  const auto trace = trace_of(text);
  auto joint = forward_part(trace);
  const auto before = graph::print(joint.graph);
  auto backward = first_backward();
  EXPECT_FALSE(append_backward(joint, trace, backward));
  EXPECT_EQ(graph::print(joint.graph), before);
  EXPECT_EQ(backward.step_segments, first_backward().step_segments);
}

TEST(Joint, ABackwardThatReadsAnotherOnesValuesIsRefused) {
  auto trace = trace_of(with_tangent_first(kFirst));
  auto backward = first_backward();
  auto both = trace;
  ASSERT_TRUE(append_backward(both, trace, backward));
  auto& reader = both.graph.ops.back();
  reader.operands[0].value = 4; // Of the first backward.
  auto joint = forward_part(trace);
  EXPECT_FALSE(append_backward(joint, both, backward));
}

} // namespace
} // namespace temper::capture
