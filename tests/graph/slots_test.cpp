// Which arguments are slots, as LibTorch's schemas report them.
#include "graph/slots.h"

#include <ATen/core/List.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/build.h"

namespace temper::graph {
namespace {

struct Case {
  const char* op;
  const char* argument;
  bool is_slot;
};

TEST(Slots, SizesOffsetsLengthsAndScalarsAreSlotsStructureIsNot) {
  const std::vector<Case> cases = {
      {"aten::view", "size", true}, // SymInt[]
      {"aten::slice.Tensor", "start", true}, // SymInt?
      {"aten::slice.Tensor", "step", true}, // SymInt
      {"aten::add.Tensor", "alpha", true}, // Scalar
      {"aten::clamp", "min", true}, // Scalar?
      {"aten::_foreach_add.ScalarList", "scalars", true}, // Scalar[]
      {"aten::native_layer_norm", "eps", true}, // float
      {"aten::bernoulli.p", "p", true}, // float
      {"aten::logit", "eps", true}, // float?
      {"aten::upsample_bilinear2d.vec", "scale_factors", true}, // float[]?
      {"aten::upsample_bilinear2d.vec", "output_size", true}, // SymInt[]?
      {"aten::convolution", "padding", true}, // SymInt[]
      {"aten::slice.Tensor", "dim", false}, // int
      {"aten::sum.dim_IntList", "dim", false}, // int[]?
      {"aten::max_pool2d_with_indices", "kernel_size", false}, // int[2]
      {"aten::sum.dim_IntList", "keepdim", false}, // bool
      {"aten::native_layer_norm_backward", "output_mask", false}, // bool[3]
      {"aten::gelu", "approximate", false}, // str
      {"aten::sum.dim_IntList", "dtype", false}, // ScalarType?
      {"aten::empty.memory_format", "layout", false}, // Layout?
      {"aten::empty.memory_format", "device", false}, // Device?
      {"aten::empty.memory_format", "memory_format", false},
      {"aten::add.Tensor", "other", false}, // Tensor
      {"aten::index.Tensor", "indices", false}, // Tensor?[]
      {"aten::bernoulli.p", "generator", false}, // Generator?
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(std::string(each.op) + " " + each.argument);
    const auto handle = find_op(each.op);
    const auto index = handle.schema().argumentIndexWithName(each.argument);
    ASSERT_TRUE(index.has_value());
    const auto& argument =
        handle.schema().arguments()[static_cast<size_t>(*index)];
    EXPECT_EQ(is_slot_argument(argument), each.is_slot);
  }
}

TEST(Slots, HoldScalarsOnly) {
  EXPECT_TRUE(is_slot_value(1));
  EXPECT_TRUE(is_slot_value(1.0));
  EXPECT_TRUE(is_slot_value(true));
  EXPECT_TRUE(is_slot_value(c10::complex<double>(0, 1)));
  EXPECT_FALSE(is_slot_value(c10::IValue()));
  EXPECT_FALSE(is_slot_value("1"));
  EXPECT_FALSE(is_slot_value(c10::List<int64_t>({1})));
}

TEST(Slots, ScalarListsAreToldFromListsOfOneKind) {
  const std::vector<Case> cases = {
      {"aten::_foreach_add.ScalarList", "scalars", true}, // Scalar[]
      {"aten::_foreach_pow.ScalarList", "exponent", true},
      {"aten::_foreach_add.Scalar", "scalar", false}, // Scalar
      {"aten::view", "size", false}, // SymInt[]
      {"aten::upsample_bilinear2d.vec", "scale_factors", false}, // float[]?
      {"aten::sum.dim_IntList", "dim", false}, // int[]?
      {"aten::native_layer_norm_backward", "output_mask", false}, // bool[3]
      {"aten::cat", "tensors", false}, // Tensor[]
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(std::string(each.op) + " " + each.argument);
    const auto handle = find_op(each.op);
    const auto index = handle.schema().argumentIndexWithName(each.argument);
    ASSERT_TRUE(index.has_value());
    EXPECT_EQ(
        is_scalar_list(
            handle.schema().arguments()[static_cast<size_t>(*index)]),
        each.is_slot);
  }
}

TEST(Slots, ListsAreOfTheKindThatTheOperatorTakes) {
  const std::vector<c10::IValue> slots = {
      3, 1.5, true, c10::complex<double>(0, 1), -2, 0.5, false};
  const auto list = [&](const std::vector<int32_t>& indices, bool scalars) {
    return list_of_slots(indices, slots.data(), scalars);
  };
  EXPECT_EQ(list({4, 0}, false).toIntVector(), (std::vector<int64_t>{-2, 3}));
  EXPECT_EQ(
      list({1, 5, 1}, false).toDoubleVector(),
      (std::vector<double>{1.5, 0.5, 1.5}));
  EXPECT_EQ(
      list({2, 6}, false).toBoolList().vec(), (std::vector<bool>{true, false}));
  EXPECT_TRUE(list({}, false).isIntList());
  // Each keeps its kind.
  const auto mixed = list({0, 1, 2, 3}, true);
  const auto scalars = mixed.toListRef();
  ASSERT_EQ(scalars.size(), 4U);
  EXPECT_EQ(scalars[0].toInt(), 3);
  EXPECT_EQ(scalars[1].toDouble(), 1.5);
  EXPECT_TRUE(scalars[2].isBool() && scalars[2].toBool());
  EXPECT_EQ(scalars[3].toComplexDouble(), c10::complex<double>(0, 1));
  EXPECT_FALSE(list({0}, true).isIntList());
  EXPECT_FALSE(list({}, true).isIntList());
  // No number is rounded or cut on the way.
  EXPECT_THROW(list({0, 1}, false), c10::Error);
}

} // namespace
} // namespace temper::graph
