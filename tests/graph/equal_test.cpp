// Equality of graphs and of constants.
#include "graph/equal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "graph/constant.h"
#include "graph/parser.h"
#include "texts.h"

namespace temper::graph {
namespace {

TEST(Equal, EveryFieldCounts) {
  const std::vector<std::function<void(Graph&)>> changes = {
      [](Graph& g) { g.form = Form::kRaw; },
      [](Graph& g) { g.values[0].type.dtype = c10::kHalf; },
      [](Graph& g) { g.values[0].type.device = c10::Device("cpu:0"); },
      [](Graph& g) { g.values[0].type.sizes[0].size = 9; },
      [](Graph& g) { g.values[0].type.sizes[0].slot = 1; },
      [](Graph& g) { g.values[0].type.sizes[0].kind = Dim::Kind::kAny; },
      [](Graph& g) { g.values[0].type.strides[0] = 65; },
      [](Graph& g) { g.values[0].type.conj = true; },
      [](Graph& g) { g.values[0].type.neg = true; },
      [](Graph& g) { g.values[0].storage = 0; },
      [](Graph& g) { g.values.emplace_back(); },
      [](Graph& g) { g.inputs[0].value = 1; },
      [](Graph& g) { g.inputs[0].role = Role::kField; },
      [](Graph& g) { g.inputs[0].name = "z"; },
      [](Graph& g) { g.objects[0].kind = "z"; },
      [](Graph& g) { g.objects[0].name = "z"; },
      [](Graph& g) { g.ops[0].op = g.ops[1].op; },
      [](Graph& g) { g.ops[0].operands[0].kind = Operand::Kind::kNone; },
      [](Graph& g) { g.ops[0].operands[0].value = 0; },
      [](Graph& g) { g.ops[0].operands[0].values = {0}; },
      [](Graph& g) { g.ops[0].operands[0].slots = {0}; },
      [](Graph& g) { g.ops[0].operands[0].constant = 1; },
      [](Graph& g) { g.ops[0].results[0] = 5; },
      [](Graph& g) { g.ops[3].writes[0].operand = 1; },
      [](Graph& g) { g.ops[3].writes[0].element = 0; },
      [](Graph& g) { g.ops[3].writes[0].result = 6; },
      [](Graph& g) { g.outputs.pop_back(); },
      [](Graph& g) { g.mutations[0].input = 0; },
      [](Graph& g) { g.mutations[0].value = 0; },
      [](Graph& g) { g.mutations[0].as_output = true; },
      [](Graph& g) { g.num_forward_ops = 3; },
      [](Graph& g) { g.segments[0].backward = 1; },
      [](Graph& g) { g.segments[0].first_op = 3; },
      [](Graph& g) { g.segments[0].end_op = 6; },
      [](Graph& g) { g.segments[0].tangents = {}; },
      [](Graph& g) {
        g.segments[0].deliveries[0].target = Delivery::Target::kInput;
      },
      [](Graph& g) { g.segments[0].deliveries[0].index = 0; },
      [](Graph& g) { g.segments[0].deliveries[0].value = 7; },
      [](Graph& g) { g.segments[0].deliveries[0].value = kNoValue; },
      [](Graph& g) { g.tangent_outputs[0] = 1; },
      [](Graph& g) { g.slots[0] = 9; },
      [](Graph& g) { g.slots[0] = 8.0; },
  };
  const Graph graph = parse(kJointText);
  EXPECT_TRUE(equal(graph, graph));
  for (size_t i = 0; i < changes.size(); ++i) {
    Graph changed = graph;
    changes[i](changed);
    EXPECT_FALSE(equal(graph, changed)) << "change " << i;
    EXPECT_TRUE(equal(changed, changed)) << "change " << i;
  }
}

TEST(Equal, ConstantsAreComparedByKindAndBits) {
  const std::vector<c10::IValue> different = {
      1,
      1.0,
      true,
      std::string("1"),
      c10::complex<double>(1.0, 0.0),
      c10::complex<double>(1.0, -0.0),
      c10::Device("cuda:1"),
      0.0,
      -0.0,
      std::nan(""),
      c10::List<int64_t>(),
      c10::List<double>(),
      c10::List<int64_t>({1}),
      c10::List<double>({1.0}),
      c10::List<bool>({true}),
  };
  for (size_t i = 0; i < different.size(); ++i) {
    for (size_t j = 0; j < different.size(); ++j) {
      EXPECT_EQ(same_constant(different[i], different[j]), i == j)
          << different[i] << " " << different[j];
    }
    EXPECT_TRUE(is_constant(different[i])) << different[i];
  }
}

TEST(Equal, WhatIsNoConstantIsRefused) {
  EXPECT_FALSE(is_constant(c10::IValue()));
  EXPECT_FALSE(is_constant(c10::List<c10::List<int64_t>>()));
  EXPECT_FALSE(is_constant(c10::List<at::Tensor>()));
  EXPECT_FALSE(same_constant(c10::IValue(), c10::IValue()));
}

} // namespace
} // namespace temper::graph
