// The chain of a plan: nodes, edges, and what each recorded backward does.
#include "dispatch/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "graph/parser.h"

namespace temper::dispatch {
namespace {

using capture::AutogradTrace;
using capture::RecordedBackward;
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = Chain::Target::Kind;

// Two inputs; "hidden" is computed first and "y" from it. Backward 0 begins at
// y, whose step has two segments, backward 1 at hidden.
constexpr std::string_view kText = R"(graph functional {
  input %0 : f32[8](1) argument "x"
  input %1 : f32[8](1) parameter "w"
  input %2 : f32[8](1) tangent "y" of output 0
  input %3 : f32[8](1) tangent "hidden" of output 1
  input %4 : f32[8](1) tangent "hidden" of output 1
  %5 : f32[8](1) = aten::mul.Tensor(%0, %1)
  %6 : f32[8](1) = aten::mul.Tensor(%5, %1)
  return %6, %5
  segment tangents(2) {
    %7 : f32[8](1) = aten::mul.Tensor(%2, %5)
    deliver input 1 = %7
  }
  segment tangents() {
    %8 : f32[8](1) = aten::mul.Tensor(%2, %1)
    deliver output 1 = %8
  }
  segment tangents(3) {
    %9 : f32[8](1) = aten::mul.Tensor(%3, %0)
    deliver input 1 = %9
  }
  segment of 1 tangents() {
  }
  segment of 1 tangents(4) {
    %10 : f32[8](1) = aten::mul.Tensor(%4, %0)
    %11 : f32[8](1) = aten::mul.Tensor(%4, %1)
    deliver input 1 = %10
    deliver input 0 = %11
  }
}
)";

struct ChainTest : testing::Test {
  ChainTest() {
    autograd.outputs = {{0, 0}, {1, 1}};
    autograd.inputs = {1, 0}; // w, x
    autograd.num_steps = 2;
    autograd.edges = {{{1, 0}, {0, 1}}, {{1, 1}, {0, 0}}};
    backwards.resize(2);
    backwards[0].step_segments = {0, 2, 3};
    backwards[1].step_segments = {3, 4, 5};
    artifact.saved.resize(2);
    artifact.segments.resize(5);
    artifact.segments[0].saved = {0};
    artifact.segments[2].saved = {1};
    artifact.segments[4].saved = {1, 0};
    artifact.num_carried = 1;
    artifact.segments[0].carried_out = {0};
    artifact.segments[1].carried_in = {0};
  }
  Chain make(std::string_view text = kText) const {
    return make_chain(graph::parse(text), autograd, backwards, artifact);
  }
  AutogradTrace autograd;
  std::vector<RecordedBackward> backwards;
  runtime::Artifact artifact;
};

TEST_F(ChainTest, AStepHasAsManyNodesAsItsLongestBackwardHasSegments) {
  const auto chain = make();
  ASSERT_EQ(chain.nodes.size(), 3U);
  EXPECT_THAT(chain.first_of_step, ElementsAre(0, 2, 3));
  EXPECT_THAT(chain.nodes[0].entering, ElementsAre(0));
  EXPECT_THAT(chain.nodes[1].entering, IsEmpty());
  EXPECT_THAT(chain.nodes[2].entering, ElementsAre(1));
  EXPECT_EQ(chain.nodes[1].step, 0);
  EXPECT_EQ(chain.nodes[2].step, 1);
}

TEST_F(ChainTest, EdgesAreTheUnionOfWhatBackwardsDeliver) {
  const auto chain = make();
  using Target = Chain::Target;
  EXPECT_THAT(chain.nodes[0].targets, ElementsAre(Target{Kind::kInput, 0}));
  EXPECT_THAT(chain.nodes[1].targets, ElementsAre(Target{Kind::kOutput, 1}));
  EXPECT_THAT(
      chain.nodes[2].targets,
      ElementsAre(Target{Kind::kInput, 0}, Target{Kind::kInput, 1}));
  const auto& first = chain.runs[0];
  EXPECT_THAT(first.nodes[2].targets, ElementsAre(0));
  EXPECT_THAT(first.nodes[2].idle, ElementsAre(1));
  EXPECT_THAT(first.delivers, ElementsAre(false, true));
  const auto& second = chain.runs[1];
  EXPECT_EQ(second.nodes[0].segment, 3);
  EXPECT_EQ(second.nodes[1].segment, -1);
  EXPECT_THAT(second.nodes[1].idle, ElementsAre(0));
  EXPECT_THAT(second.nodes[2].targets, ElementsAre(0, 1));
  EXPECT_THAT(second.nodes[2].tangents, ElementsAre(0));
}

// They take an edge, so that what lies behind it is visited; but nothing comes.
TEST_F(ChainTest, UndefinedGradientsHaveEdgesAndDeliverNothing) {
  const auto without = [](std::string_view delivery) {
    std::string text(kText);
    const size_t at = text.find(delivery);
    return text.replace(
        at + delivery.find('%'), delivery.size() - delivery.find('%'), "none");
  };
  using Target = Chain::Target;
  const auto to_output = make(without("deliver output 1 = %8"));
  EXPECT_THAT(
      to_output.nodes[1].targets, ElementsAre(Target{Kind::kOutput, 1}));
  EXPECT_THAT(to_output.runs[0].nodes[1].targets, ElementsAre(0));
  EXPECT_THAT(to_output.runs[0].nodes[1].idle, IsEmpty());
  EXPECT_THAT(to_output.runs[0].delivers, ElementsAre(false, false));
  // Inputs are ordered by the gradients that they get.
  EXPECT_THAT(make().input_order, ElementsAre(1, 0));
  const auto to_input = make(without("deliver input 1 = %9"));
  EXPECT_THAT(to_input.input_order, ElementsAre(0, 0));
  EXPECT_THAT(to_input.runs[0].nodes[2].targets, ElementsAre(0));
  EXPECT_THAT(to_input.runs[0].nodes[2].shared, IsEmpty());
}

TEST_F(ChainTest, SavedValuesKnowTheirLastReader) {
  const auto chain = make();
  EXPECT_THAT(chain.runs[0].last_reader, ElementsAre(0, 2));
  EXPECT_THAT(chain.runs[1].last_reader, ElementsAre(2, 2));
  EXPECT_THAT(chain.runs[0].last_carried, ElementsAre(1));
  EXPECT_THAT(chain.runs[1].last_carried, ElementsAre(-1));
}

TEST_F(ChainTest, WithoutABackwardThereAreEdgesForEachUse) {
  backwards.clear();
  autograd.edges[1].inputs = {3, 1};
  const auto chain = make();
  using Target = Chain::Target;
  ASSERT_EQ(chain.nodes.size(), 2U);
  EXPECT_THAT(
      chain.nodes[0].targets,
      ElementsAre(Target{Kind::kInput, 0}, Target{Kind::kOutput, 1}));
  EXPECT_THAT(
      chain.nodes[1].targets,
      ElementsAre(
          Target{Kind::kInput, 0},
          Target{Kind::kInput, 0},
          Target{Kind::kInput, 0},
          Target{Kind::kInput, 1}));
}

} // namespace
} // namespace temper::dispatch
