// Which arguments are slots, as LibTorch's schemas report them.
#include "graph/slots.h"

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

} // namespace
} // namespace temper::graph
