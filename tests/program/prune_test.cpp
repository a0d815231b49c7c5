// Pruned programs: what goes, and what must stay.
#include "program/prune.h"

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "graph/parser.h"
#include "program/lowering.h"

namespace temper::program {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

bool draws(const c10::OperatorHandle& op) {
  return graph::op_name(op) == "aten::rand_like";
}

// The operators that are left when these outputs are needed.
std::vector<std::string> left(
    std::string_view text,
    const std::vector<bool>& needed) {
  const Program whole = lower(
      graph::parse(text),
      [](const c10::OperatorHandle&) -> Kernel { return nullptr; });
  const Program pruned = prune(whole, needed, &draws);
  EXPECT_EQ(pruned.num_inputs, whole.num_inputs);
  EXPECT_EQ(pruned.num_registers, whole.num_registers);
  EXPECT_EQ(pruned.outputs.size(), whole.outputs.size());
  for (size_t i = 0; i < needed.size(); ++i) {
    EXPECT_EQ(pruned.outputs[i], needed[i] ? whole.outputs[i] : kNoRegister);
  }
  std::vector<std::string> names;
  for (const Instruction& instruction : pruned.instructions) {
    names.push_back(graph::op_name(instruction.op));
  }
  return names;
}

constexpr std::string_view kTwoOutputs = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::neg(%0)
  %2 : f32[4](1) @2 = aten::exp(%1)
  %3 : f32[4](1) @3 = aten::sin(%1)
  return %2, %3
}
)";

TEST(Prune, KeepsWhatTheNeededOutputsAreMadeOf) {
  EXPECT_THAT(
      left(kTwoOutputs, {true, true}),
      ElementsAre("aten::neg", "aten::exp", "aten::sin"));
  EXPECT_THAT(
      left(kTwoOutputs, {true, false}), ElementsAre("aten::neg", "aten::exp"));
  EXPECT_THAT(
      left(kTwoOutputs, {false, true}), ElementsAre("aten::neg", "aten::sin"));
  EXPECT_THAT(left(kTwoOutputs, {false, false}), IsEmpty());
}

TEST(Prune, FindsLastUsesAnew) {
  const Program whole = lower(
      graph::parse(kTwoOutputs),
      [](const c10::OperatorHandle&) -> Kernel { return nullptr; });
  const Program pruned = prune(whole, {true, false}, &draws);
  EXPECT_THAT(whole.instructions[1].last_uses, IsEmpty());
  EXPECT_THAT(pruned.instructions[1].last_uses, ElementsAre(1));
}

TEST(Prune, KeepsOperatorsWithEffects) {
  constexpr std::string_view kText = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::neg(%0)
  %2 : f32[4](1) @2 = aten::rand_like(%1, none, none, none, none, none)
  %3 : f32[4](1) @3 = aten::exp(%2)
  return %3
}
)";
  EXPECT_THAT(
      left(kText, {false}), ElementsAre("aten::neg", "aten::rand_like"));
}

TEST(Prune, KeepsWritesToInputs) {
  constexpr std::string_view kText = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  input %1 : f32[4](1) @1 buffer "sum"
  %2 : f32[2](1) @1 = aten::slice.Tensor(%1, 0, 0, 2, 1)
  %3 : f32[2](1) @0 = aten::slice.Tensor(%0, 0, 2, 4, 1)
  %2 = aten::add_.Tensor(%2, %3, 1) writes(0)
  %4 : f32[4](1) @4 = aten::exp(%1)
  return %4
  mutate input 1
}
)";
  EXPECT_THAT(
      left(kText, {false}),
      ElementsAre(
          "aten::slice.Tensor", "aten::slice.Tensor", "aten::add_.Tensor"));
}

TEST(Prune, KeepsWritesThroughViewsOfWhatIsNeededAndNoOthers) {
  constexpr std::string_view kText = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::neg(%0)
  %2 : f32[2](1) @1 = aten::slice.Tensor(%1, 0, 0, 2, 1)
  %2 = aten::zero_(%2) writes(0)
  %3 : f32[4](1) @3 = aten::exp(%0)
  %3 = aten::zero_(%3) writes(0)
  return %1, %3
}
)";
  EXPECT_THAT(
      left(kText, {true, false}),
      ElementsAre("aten::neg", "aten::slice.Tensor", "aten::zero_"));
  EXPECT_THAT(
      left(kText, {false, true}), ElementsAre("aten::exp", "aten::zero_"));
}

TEST(Prune, KeepsWritesOfListsOfTensors) {
  constexpr std::string_view kText = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::neg(%0)
  %2 : f32[4](1) @2 = aten::exp(%0)
  aten::_foreach_zero_([%1, %2]) writes(0[0], 0[1])
  %3 : f32[4](1) @3 = aten::sin(%2)
  return %1, %3
}
)";
  EXPECT_THAT(
      left(kText, {true, false}),
      ElementsAre("aten::neg", "aten::exp", "aten::_foreach_zero_"));
}

TEST(Prune, TakesOutOperandsForWhatTheyReturn) {
  constexpr std::string_view kText = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::empty_like(%0, none, none, none, none, none)
  %1 = aten::exp.out(%0, %1) writes(1)
  %2 : f32[4](1) @2 = aten::sin(%0)
  return %1, %2
}
)";
  EXPECT_THAT(
      left(kText, {true, false}),
      ElementsAre("aten::empty_like", "aten::exp.out"));
  EXPECT_THAT(left(kText, {false, true}), ElementsAre("aten::sin"));
}

TEST(Prune, TrustsNoSchemaThatHidesItsViewsOrWrites) {
  // A view that the schema does not tell: the write through it is of %1.
  constexpr std::string_view kView = R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::neg(%0)
  %2 : f32[2, 2](2, 1) @1 = aten::_unsafe_view(%1, int[2, 2])
  %2 = aten::zero_(%2) writes(0)
  return %1
}
)";
  EXPECT_THAT(
      left(kView, {true}),
      ElementsAre("aten::neg", "aten::_unsafe_view", "aten::zero_"));
  // Statistics that batch norm writes.
  constexpr std::string_view kStatistics = R"(graph raw {
  input %0 : f32[2, 4](4, 1) @0 argument "x"
  input %1 : f32[4](1) @1 buffer "mean"
  input %2 : f32[4](1) @2 buffer "var"
  %3 : f32[2, 4](4, 1) @3, %4 : f32[4](1) @4, %5 : f32[4](1) @5 = aten::native_batch_norm(%0, none, none, %1, %2, true, 0.1, 1e-05) writes(3, 4)
  return %3
  mutate input 1
  mutate input 2
}
)";
  EXPECT_THAT(
      left(kStatistics, {false}), ElementsAre("aten::native_batch_norm"));
}

TEST(Prune, WantsOneFlagAnOutput) {
  EXPECT_THROW(left(kTwoOutputs, {true}), temper::InternalError);
}

} // namespace
} // namespace temper::program
