// Raw graphs become programs: registers, decoded arguments, last uses.
#include "program/lowering.h"

#include <gmock/gmock.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "graph/parser.h"
#include "program/print.h"

namespace temper::program {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

void view_kernel(const Instruction&, Frame&) {}
void other_kernel(const Instruction&, Frame&) {}

Kernel kernel_for(const c10::OperatorHandle& op) {
  return graph::op_name(op) == "aten::slice.Tensor" ? &view_kernel
                                                    : &other_kernel;
}

Program lowered(std::string_view text) {
  return lower(graph::parse(text), &kernel_for);
}

// A view that is written, an op that returns its operand, lists, slots, an
// object, and an input that nobody reads.
constexpr std::string_view kText = R"(graph raw {
  slot $0 = 2
  slot $1 = 1.5
  slot $2 = 3
  object #0 = "generator" "default"
  input %0 : f32[6, 4](4, 1) @0 argument "x"
  input %1 : f32[4](1) @1 buffer "unread"
  %2 : f32[2, 4](4, 1) @0 = aten::slice.Tensor(%0, 0, $0, none, 1)
  %2 = aten::mul_.Scalar(%2, $1) writes(0)
  %3 : f32[2, 3](3, 1) @2 = aten::empty.memory_format($[0, 2], 6, none, none, none, none)
  %3 = aten::bernoulli_.float(%3, 0.5, #0) writes(0)
  %4 : f32[2, 7](7, 1) @3 = aten::cat([%2, %3], 1)
  %5 : f32[2, 4](4, 1) @4, %6 : f32[2, 3](3, 1) @5 = aten::split_with_sizes_copy(%4, int[4, 3], 1)
  return %5, none, %2
}
)";

TEST(Lowering, InputsComeFirstAndEachObjectHasOneRegister) {
  const Program program = lowered(kText);
  EXPECT_EQ(program.num_inputs, 2);
  EXPECT_EQ(program.num_registers, 7);
  ASSERT_EQ(program.instructions.size(), 6U);
  EXPECT_THAT(program.instructions[0].results, ElementsAre(2));
  // Written in place: the object, and so the register, is the same.
  EXPECT_THAT(program.instructions[1].results, ElementsAre(2));
  EXPECT_THAT(program.instructions[5].results, ElementsAre(5, 6));
  EXPECT_THAT(program.outputs, ElementsAre(5, kNoRegister, 2));
}

TEST(Lowering, ArgumentsAreDecoded) {
  const Program program = lowered(kText);
  const auto& slice = program.instructions[0].arguments;
  ASSERT_EQ(slice.size(), 5U);
  EXPECT_EQ(slice[0].kind, Argument::Kind::kRegister);
  EXPECT_EQ(slice[0].single, 0);
  EXPECT_EQ(slice[1].kind, Argument::Kind::kConstant);
  EXPECT_EQ(slice[1].constant.toInt(), 0);
  EXPECT_EQ(slice[2].kind, Argument::Kind::kSlot);
  EXPECT_EQ(slice[2].single, 0);
  EXPECT_EQ(slice[3].kind, Argument::Kind::kNone);
  const auto& empty = program.instructions[2].arguments;
  EXPECT_EQ(empty[0].kind, Argument::Kind::kSlotList);
  EXPECT_THAT(empty[0].index, ElementsAre(0, 2));
  EXPECT_EQ(empty[0].single, -1);
  const auto& bernoulli = program.instructions[3].arguments;
  EXPECT_EQ(bernoulli[2].kind, Argument::Kind::kObject);
  EXPECT_EQ(bernoulli[2].single, 0);
  const auto& cat = program.instructions[4].arguments;
  EXPECT_EQ(cat[0].kind, Argument::Kind::kRegisterList);
  EXPECT_THAT(cat[0].index, ElementsAre(2, 3));
  EXPECT_FALSE(cat[0].optional_elements);
  const auto& split = program.instructions[5].arguments;
  EXPECT_THAT(split[1].ints, ElementsAre(4, 3));
}

TEST(Lowering, ListsOfOptionalTensorsMayHoldNone) {
  const Program program = lowered(R"(graph raw {
  input %0 : f32[6, 4](4, 1) @0 argument "x"
  input %1 : i64[3](1) @1 argument "rows"
  %2 : f32[6, 3](3, 1) @2 = aten::index.Tensor(%0, [none, %1])
  return %2
}
)");
  const Argument& indices = program.instructions[0].arguments[1];
  EXPECT_TRUE(indices.optional_elements);
  EXPECT_THAT(indices.index, ElementsAre(kNoRegister, 1));
}

TEST(Lowering, EachOpGetsTheKernelThatIsChosenForIt) {
  const Program program = lowered(kText);
  EXPECT_EQ(program.instructions[0].kernel, &view_kernel);
  EXPECT_EQ(program.instructions[1].kernel, &other_kernel);
}

TEST(Lowering, ARegisterIsEmptiedByItsLastUse) {
  const Program program = lowered(kText);
  // The first instruction is the last to read input 0, and gets rid of the one
  // that nobody reads.
  EXPECT_THAT(program.instructions[0].last_uses, UnorderedElementsAre(0, 1));
  EXPECT_THAT(program.instructions[1].last_uses, IsEmpty());
  // 2 is an output; 3 is read last by the cat.
  EXPECT_THAT(program.instructions[4].last_uses, ElementsAre(3));
  // 6 is a result that nobody reads.
  EXPECT_THAT(program.instructions[5].last_uses, UnorderedElementsAre(4, 6));
}

TEST(Lowering, ARegisterThatIsReadTwiceIsEmptiedOnce) {
  const Program program = lowered(R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %1 : f32[4](1) @1 = aten::mul.Tensor(%0, %0)
  return %1
}
)");
  EXPECT_THAT(program.instructions[0].last_uses, ElementsAre(0));
}

TEST(Lowering, AnOperandThatIsWrittenAndNeverReadIsEmptiedOnce) {
  const Program program = lowered(R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  %0 = aten::zero_(%0) writes(0)
  return
  mutate input 0
}
)");
  EXPECT_THAT(program.instructions[0].last_uses, ElementsAre(0));
}

TEST(Lowering, AProgramWithoutInstructionsReturnsItsInputs) {
  const Program program = lowered(R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  input %1 : f32[4](1) @1 argument "y"
  return %1, %1
}
)");
  EXPECT_THAT(program.instructions, IsEmpty());
  EXPECT_THAT(program.outputs, ElementsAre(1, 1));
}

TEST(Lowering, TakesRawGraphsOnly) {
  EXPECT_THROW(
      lowered("graph functional {\n  return\n}\n"), temper::InternalError);
}

TEST(Print, ShowsEveryKindOfArgument) {
  EXPECT_EQ(print(lowered(kText)), R"(program (r0, r1) {
  r2 = aten::slice.Tensor(r0, 0, $0, none, 1) ; free r0, r1
  r2 = aten::mul_.Scalar(r2, $1)
  r3 = aten::empty.memory_format($[0, 2], 6, none, none, none, none)
  r3 = aten::bernoulli_.float(r3, 0.5, #0)
  r4 = aten::cat([r2, r3], 1) ; free r3
  r5, r6 = aten::split_with_sizes_copy(r4, [4, 3], 1) ; free r6, r4
  return r5, none, r2
}
)");
}

TEST(Print, ShowsOpsWithoutResultsAndEmptyPrograms) {
  EXPECT_EQ(
      print(lowered(R"(graph raw {
  input %0 : f32[4](1) @0 argument "x"
  aten::_foreach_zero_([%0]) writes(0[0])
  return
  mutate input 0
}
)")),
      R"(program (r0) {
  aten::_foreach_zero_([r0]) ; free r0
  return
}
)");
}

} // namespace
} // namespace temper::program
