// The verifier: sound graphs pass, each fault is named.
#include "graph/verifier.h"

#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "graph/parser.h"
#include "texts.h"

namespace temper::graph {
namespace {

using testing::HasSubstr;

// More kinds of arguments than the other texts have.
constexpr std::string_view kArgumentsText = R"(graph functional {
  slot $0 = 4
  slot $1 = 0.5
  slot $2 = true
  object #0 = "generator" "default"
  input %0 : f32[$0=4, 8](8, 1) argument "x"
  input %1 : i64[$0=4](1) argument "index"
  %2 : f32[?4, 8](8, 1) = aten::index.Tensor(%0, [%1, none])
  %3 : f32[?8, 8](8, 1) = aten::cat([%0, %2], 0)
  %4 : f32[8](1) = aten::sum.dim_IntList(%3, int[0], false, none)
  %5 : f32[8](1) = aten::gelu(%4, "tanh")
  %6 : f32[8](1) = aten::clamp(%5, $2, none)
  %7 : f32[?8](1) = aten::_to_copy(%6, 6, 0, device("cpu"), false, false, none)
  %8 : f32[2, 4](4, 1) = aten::view(%7, int[2, 4])
  %9 : f32[2, 4](4, 1), %10 : bool[2, 4](4, 1) = aten::native_dropout(%8, $1, true)
  %11 : f32[2, 4](4, 1), none, none = aten::native_layer_norm_backward(%8, %8, int[4], %8, %8, none, none, bool[true, false, false])
  %12 : f32[2, 4](4, 1), %13 : f32[2, 4](4, 1) = aten::unbind.int(%11, 0)
  %14 : f32[2, 4](4, 1) = aten::add.Scalar(%12, 2, 1.0)
  return %14
}
)";

TEST(Verifier, PassesSoundGraphs) {
  for (const auto text :
       {kJointText, kBackwardsText, kRawText, kArgumentsText}) {
    EXPECT_NO_THROW(verify(parse(text))) << text;
  }
  EXPECT_NO_THROW(verify(Graph()));
}

TEST(Verifier, PassesAPartitionedBackwardThatReadsItsTangents) {
  EXPECT_NO_THROW(verify(parse(R"(graph functional {
    input %0 : f32[2](1) saved "x"
    input %1 : f32[2](1) tangent "y"
    input %2 : f32[2](1) carried "z"
    %3 : f32[2](1) = aten::mul.Tensor(%0, %1)
    return %3
  })")));
}

struct Fault {
  std::string_view text;
  std::function<void(Graph&)> change;
  std::string message;
};

void expect_message(const Graph& graph, const std::string& message) {
  try {
    verify(graph);
    ADD_FAILURE() << "passed, expected: " << message;
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("unsound graph: "));
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

void expect_messages(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.message);
    Graph graph = parse(fault.text);
    fault.change(graph);
    expect_message(graph, fault.message);
  }
}

TEST(Verifier, NamesFaultsOfSlotsAndTypes) {
  expect_messages({
      {kJointText,
       [](Graph& g) { g.slots[1] = "x"; },
       "slot $1: holds String, expected int, double, bool or complex"},
      {kJointText,
       [](Graph& g) { g.values[4].type.strides.pop_back(); },
       "value %4: has 2 sizes and 1 strides"},
      {kJointText,
       [](Graph& g) { g.values[4].type.sizes[0].size = -1; },
       "value %4: has the size -1"},
      {kJointText,
       [](Graph& g) { g.values[0].type.sizes[0].slot = -1; },
       "value %0: a size has the slot -1 but its kind says it is one"},
      {kJointText,
       [](Graph& g) { g.values[0].type.sizes[1].slot = 0; },
       "value %0: a size has the slot 0 but its kind says it is none"},
      {kJointText,
       [](Graph& g) { g.values[0].type.sizes[0].slot = 2; },
       "value %0: a size names slot $2 of 2"},
      {kJointText,
       [](Graph& g) { g.values[0].type.sizes[0].slot = 1; },
       "value %0: a size names slot $1, which holds no int"},
      {kJointText,
       [](Graph& g) { g.values[3].storage = 0; },
       "value %3: has a storage in the functional form"},
      {kRawText,
       [](Graph& g) { g.values[3].storage = -1; },
       "value %3: has no storage in the raw form"},
  });
}

TEST(Verifier, NamesFaultsOfInputs) {
  expect_messages({
      {kJointText,
       [](Graph& g) { g.inputs[0].value = 12; },
       "input 0 ('x'): value %12 of 12"},
      {kJointText,
       [](Graph& g) { g.inputs[0].value = kNoValue; },
       "input 0 ('x'): value %-1 of 12"},
      {kJointText,
       [](Graph& g) { g.inputs[1].value = 0; },
       "input 1 ('fc.weight'): %0 is an input already"},
      {kJointText,
       [](Graph& g) { g.tangent_outputs.pop_back(); },
       "tangents: the outputs of 1 tangents are named, and 2 inputs are"},
      {kJointText,
       [](Graph& g) { g.tangent_outputs[1] = 3; },
       "tangents: output 3 of 3 is named"},
  });
}

TEST(Verifier, NamesFaultsOfDefinitions) {
  expect_messages({
      {kJointText,
       [](Graph& g) { g.ops[1].operands[0].value = 40; },
       "op 1 (aten::mm): value %40 of 12"},
      {kJointText,
       [](Graph& g) { g.ops[1].operands[0].value = 7; },
       "op 1 (aten::mm): uses %7 before its definition"},
      {kArgumentsText,
       [](Graph& g) { g.ops[0].operands[1].values[0] = 9; },
       "op 0 (aten::index.Tensor): uses %9 before its definition"},
      {kJointText,
       [](Graph& g) { g.ops[1].results[0] = 4; },
       "op 1 (aten::mm): defines %4 a second time"},
      {kJointText,
       [](Graph& g) { g.ops[1].results[0] = 12; },
       "op 1 (aten::mm): value %12 of 12"},
      {kJointText,
       [](Graph& g) { g.ops[0].results[0] = 2; },
       "op 0 (aten::t): defines %2 a second time"},
      {kJointText,
       [](Graph& g) {
         g.ops[3].writes[0].result = 5;
         g.ops[3].results[0] = 5;
       },
       "op 3 (aten::mul_.Tensor): defines %5 a second time"},
      {kRawText,
       [](Graph& g) { g.ops[2].results[0] = 0; },
       "op 2 (aten::empty.memory_format): defines %0 a second time"},
      {kJointText,
       [](Graph& g) { g.outputs[0] = 9; },
       "output 0: uses %9 before its definition"},
      {kJointText,
       [](Graph& g) { g.ops[1].operands[0].value = 2; },
       "op 1 (aten::mm): uses tangent %2 before a segment takes it in"},
      {kJointText,
       [](Graph& g) { g.ops[4].operands[0].value = 3; },
       "op 4 (aten::mul.Tensor): uses tangent %3 before a segment takes it in"},
  });
}

TEST(Verifier, NamesFaultsOfOperands) {
  using Kind = Operand::Kind;
  expect_messages({
      {kJointText,
       [](Graph& g) { g.ops[1].operands[0].slots = {0}; },
       "op 1 (aten::mm): operand 0 has a field that its kind does not use"},
      {kJointText,
       [](Graph& g) { g.ops[1].operands[0].constant = 1; },
       "operand 0 has a field that its kind does not use"},
      {kJointText,
       [](Graph& g) { g.ops[1].operands[0].values = {1}; },
       "operand 0 has a field that its kind does not use"},
      {kJointText,
       [](Graph& g) { g.ops[2].operands[1].value = 1; },
       "operand 1 has a field that its kind does not use"},
      {kJointText,
       [](Graph& g) {
         g.ops[2].operands[1].slots = {0, 1};
       },
       "operand 1 has 2 indices, expected one"},
      {kJointText,
       [](Graph& g) { g.ops[2].operands[2].slots = {}; },
       "operand 2 has 0 indices, expected one"},
      {kJointText,
       [](Graph& g) { g.ops[2].operands[1].slots = {2}; },
       "operand 1 names slot $2 of 2"},
      {kJointText,
       [](Graph& g) { g.ops[2].operands[2].slots = {1}; },
       "operand 2 names object #1 of 1"},
      {kArgumentsText,
       [](Graph& g) { g.ops[2].operands[3].kind = Kind::kConstant; },
       "operand 3 is no constant but None"},
  });
}

// Replaces operand `index` of op `op`.
std::function<void(Graph&)> with(size_t op, size_t index, Operand operand) {
  return [=](Graph& g) { g.ops[op].operands[index] = operand; };
}

TEST(Verifier, NamesOperandsThatDoNotFitTheSchema) {
  const Operand list = constant_operand(c10::List<double>({1.0}));
  expect_messages({
      {kJointText,
       [](Graph& g) { g.ops[1].operands.pop_back(); },
       "op 1 (aten::mm): has 1 operands, expected 2 (aten::mm(Tensor self"},
      {kArgumentsText,
       with(1, 0, value_operand(0)),
       "op 1 (aten::cat): operand 0 (tensors) is a tensor, expected Tensor[]"},
      {kArgumentsText,
       with(1, 0, none_operand()),
       "operand 0 (tensors) is none, expected Tensor[]"},
      {kArgumentsText,
       with(1, 1, slot_operand(0)),
       "operand 1 (dim) is a slot of kind Int, expected int"},
      {kArgumentsText,
       with(1, 1, none_operand()),
       "operand 1 (dim) is none, expected int"},
      {kArgumentsText,
       with(1, 1, constant_operand(1.0)),
       "operand 1 (dim) is a constant Double, expected int"},
      {kArgumentsText,
       with(2, 0, value_list_operand({3})),
       "operand 0 (self) is a tensor list, expected Tensor"},
      {kArgumentsText,
       with(2, 0, constant_operand(1)),
       "operand 0 (self) is a constant Int, expected Tensor"},
      {kArgumentsText,
       with(2, 1, list),
       "operand 1 (dim) is a constant GenericList, expected int[]?"},
      {kArgumentsText,
       with(2, 1, constant_operand(1)),
       "operand 1 (dim) is a constant Int, expected int[]?"},
      {kArgumentsText,
       with(2, 2, constant_operand(1)),
       "operand 2 (keepdim) is a constant Int, expected bool"},
      {kArgumentsText,
       with(2, 3, constant_operand(true)),
       "operand 3 (dtype) is a constant Bool, expected ScalarType?"},
      {kArgumentsText,
       with(3, 1, constant_operand(1)),
       "operand 1 (approximate) is a constant Int, expected str"},
      {kArgumentsText,
       with(4, 1, slot_list_operand({0})),
       "operand 1 (min) is a list of slots, expected Scalar?"},
      {kArgumentsText,
       with(4, 1, object_operand(0)),
       "operand 1 (min) is an object, expected Scalar?"},
      {kArgumentsText,
       with(5, 3, constant_operand("cpu")),
       "operand 3 (device) is a constant String, expected Device?"},
      {kArgumentsText,
       with(6, 1, slot_operand(0)),
       "operand 1 (size) is a slot of kind Int, expected SymInt[]"},
      {kArgumentsText,
       with(6, 1, slot_list_operand({0, 1})),
       "operand 1 (size) is a list of slots, expected SymInt[]"},
      {kArgumentsText,
       with(7, 1, slot_operand(0)),
       "operand 1 (p) is a slot of kind Int, expected float"},
      {kArgumentsText,
       with(7, 2, object_operand(0)),
       "operand 2 (train) is an object, expected bool?"},
      {kJointText,
       with(2, 2, constant_operand(1)),
       "operand 2 (generator) is a constant Int, expected Generator?"},
  });
}

TEST(Verifier, NamesResultsAndWritesThatDoNotFitTheSchema) {
  expect_messages({
      {kJointText,
       [](Graph& g) { g.ops[1].results.push_back(kNoValue); },
       "op 1 (aten::mm): has 2 results, expected 1 (aten::mm("},
      {kArgumentsText,
       [](Graph& g) { g.ops[7].results.pop_back(); },
       "op 7 (aten::native_dropout): has 1 results, expected 2"},
      {kJointText,
       [](Graph& g) { g.ops[3].writes.clear(); },
       "op 3 (aten::mul_.Tensor): operand 0 (self) is written, says the "
       "schema, but is not in `writes`"},
      {kRawText,
       [](Graph& g) { g.ops[4].writes.pop_back(); },
       "op 4 (aten::_foreach_add_.Scalar): operand 0 (self)[1] is written"},
      {kRawText,
       [](Graph& g) { g.ops[3].results[0] = 2; },
       "op 3 (aten::add.out): result 0 is %2, expected %3: it returns the "
       "operand it wrote"},
      {kJointText,
       [](Graph& g) { g.ops[3].results[0] = 8; },
       "op 3 (aten::mul_.Tensor): result 0 is %8, expected %7: it returns what "
       "it wrote"},
      {kJointText,
       [](Graph& g) { g.ops[3].writes[0].operand = 2; },
       "op 3 (aten::mul_.Tensor): writes operand 2 of 2"},
      {kJointText,
       [](Graph& g) {
         g.ops[2].writes.push_back({1, -1, 7});
       },
       "op 2 (aten::bernoulli.p): writes operand 1, which is no tensor"},
      {kJointText,
       [](Graph& g) { g.ops[3].writes[0].element = 0; },
       "writes operand 0[0], which is no tensor"},
      {kRawText,
       [](Graph& g) { g.ops[4].writes[1].element = 2; },
       "writes operand 0[2], which is no tensor"},
      {kRawText,
       [](Graph& g) { g.ops[4].operands[0].values[1] = kNoValue; },
       "writes operand 0[1], which is no tensor"},
      {kRawText,
       [](Graph& g) { g.ops[4].writes[1].element = 0; },
       "writes operand 0 more than once"},
      {kJointText,
       [](Graph& g) { g.ops[3].writes[0].result = kNoValue; },
       "its write of operand 0 has no result in the functional form"},
      {kRawText,
       [](Graph& g) { g.ops[1].writes[0].result = 3; },
       "its write of operand 0 has a result in the raw form"},
  });
}

TEST(Verifier, NamesFaultsOfMutations) {
  expect_messages({
      {kJointText,
       [](Graph& g) { g.mutations[0].input = 4; },
       "mutation 0: of input 4 of 4"},
      {kJointText,
       [](Graph& g) { g.mutations[0].input = 2; },
       "mutation 0: of input 2, a tangent"},
      {kRawText,
       [](Graph& g) { g.mutations[1].input = 0; },
       "mutation 1: of input 0, which has one already"},
      {kJointText,
       [](Graph& g) { g.mutations[0].value = kNoValue; },
       "mutation 0: has no value in the functional form"},
      {kRawText,
       [](Graph& g) { g.mutations[0].value = 2; },
       "mutation 0: has a value in the raw form"},
      {kJointText,
       [](Graph& g) { g.mutations[0].value = 9; },
       "mutation 0: uses %9 before its definition"},
  });
}

TEST(Verifier, NamesFaultsOfTheBackward) {
  expect_messages({
      {kJointText,
       [](Graph& g) { g.num_forward_ops = 9; },
       "graph: num_forward_ops is 9 of 8 ops"},
      {kJointText,
       [](Graph& g) { g.segments[1].first_op = 6; },
       "segment 1: covers ops [6, 8), expected to begin at 5 and to end by 8"},
      {kJointText,
       [](Graph& g) { g.segments[1].end_op = 9; },
       "segment 1: covers ops [5, 9)"},
      {kJointText,
       [](Graph& g) { g.segments[0].end_op = 3; },
       "segment 0: covers ops [4, 3)"},
      {kJointText,
       [](Graph& g) {
         g.segments[1].end_op = 7;
         g.segments[1].deliveries.pop_back();
       },
       "backward: the segments end at op 7 of 8"},
      {kRawText,
       [](Graph& g) { g.num_forward_ops = 5; },
       "uses %4 before its definition"},
      {kJointText,
       [](Graph& g) { g.segments[0].tangents[0] = 1; },
       "segment 0: takes in input 1, which is no tangent"},
      {kJointText,
       [](Graph& g) { g.segments[0].tangents[0] = 4; },
       "segment 0: takes in input 4, which is no tangent"},
      {kJointText,
       [](Graph& g) {
         g.segments[1].tangents = {3, 2};
       },
       "segment 1: takes in tangent 2 a second time"},
      {kJointText,
       [](Graph& g) {
         g.segments[1].deliveries.clear();
         g.segments[1].tangents.clear();
         g.segments[0].tangents = {2};
         g.segments[0].deliveries.clear();
         g.ops.resize(5, g.ops[0]);
         g.segments[1].end_op = 5;
       },
       "backward: no segment takes in tangent %3"},
      {kJointText,
       [](Graph& g) { g.segments[0].deliveries[0].value = 9; },
       "segment 0: uses %9 before its definition"},
      {kJointText,
       [](Graph& g) { g.segments[1].deliveries[0].index = 2; },
       "segment 1: delivers to input 2, which has no gradient"},
      {kJointText,
       [](Graph& g) { g.segments[1].deliveries[0].index = 4; },
       "segment 1: delivers to input 4, which has no gradient"},
      // An undefined gradient goes somewhere, too.
      {kBackwardsText,
       [](Graph& g) { g.segments[2].deliveries[1].index = 1; },
       "segment 2: delivers to input 1, which has no gradient"},
      {kJointText,
       [](Graph& g) { g.segments[0].deliveries[0].index = 3; },
       "segment 0: delivers to output 3 of 3"},
      {kJointText,
       [](Graph& g) { g.segments[0].deliveries[0].index = 0; },
       "segment 0: delivers to output 0, whose tangent an earlier segment took"},
      {kBackwardsText,
       [](Graph& g) { g.segments[2].backward = 2; },
       "segment 2: is of backward 2 after one of backward 0"},
      {kBackwardsText,
       [](Graph& g) { g.segments[0].backward = 1; },
       "segment 0: is of backward 1 after one of backward 0"},
      {kBackwardsText,
       [](Graph& g) { g.segments[2].deliveries[0].value = 8; },
       "segment 2: uses %8 of another backward"},
      {kBackwardsText,
       [](Graph& g) { g.ops[5].operands[1].value = 6; },
       "op 5 (aten::mul.Tensor): uses %6 of another backward"},
      {kBackwardsText,
       [](Graph& g) { g.ops[5].operands[0].value = 2; },
       "op 5 (aten::mul.Tensor): uses %2 of another backward"},
  });
}

} // namespace
} // namespace temper::graph
