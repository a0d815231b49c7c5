// Typed kernels give what boxed calls give: a call for each kind of argument
// and result that they decode, and for the operators of common models.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <string>

#include "codegen/boxed_kernel.h"
#include "codegen/typed_kernels.h"
#include "graph/build.h"
#include "support/raw_builder.h"
#include "support/run_artifact.h"

namespace temper::codegen {
namespace {

using graph::ValueId;
using support::Arg;
using support::flag;
using support::ints;
using support::none;
using support::num;
using support::RawBuilder;

using List = std::vector<ValueId>;

struct Case {
  std::string name;
  /// The arguments, from inputs a and b [4, 4], image [2, 4, 6, 6], index [4].
  std::function<std::vector<Arg>(ValueId, ValueId, ValueId, ValueId)> args;
};

Arg integer(int64_t n) {
  return num(n);
}

Arg bools(std::vector<bool> list) {
  c10::List<bool> values;
  for (const bool each : list) {
    values.push_back(each);
  }
  return {c10::IValue(values)};
}

Arg text(const char* value) {
  return {c10::IValue(value)};
}

std::vector<Case> cases() {
#define CASE(name, ...)                                        \
  {                                                            \
    name, [](ValueId a, ValueId b, ValueId image, ValueId i) { \
      static_cast<void>(a), static_cast<void>(b);              \
      static_cast<void>(image), static_cast<void>(i);          \
      return std::vector<Arg> __VA_ARGS__;                     \
    }                                                          \
  }
  return {
      CASE("aten::add.Tensor", {a, b, num(0.5)}),
      CASE("aten::rsub.Scalar", {a, num(1.0)}),
      CASE("aten::div.Tensor_mode", {a, b, text("floor")}),
      CASE("aten::pow.Tensor_Scalar", {a, integer(2)}),
      CASE("aten::clamp", {a, num(-0.5), none()}),
      CASE("aten::addmm", {a, a, b, num(0.5), num(2.0)}),
      CASE("aten::gelu", {a, text("tanh")}),
      CASE("aten::gelu_backward", {a, b, text("none")}),
      CASE("aten::_softmax", {a, integer(-1), flag(false)}),
      CASE("aten::_softmax_backward_data", {a, b, integer(1), integer(6)}),
      CASE("aten::native_dropout", {a, num(0.3), flag(true)}),
      CASE("aten::view", {a, ints({2, 8})}),
      CASE("aten::permute", {a, ints({1, 0})}),
      CASE("aten::slice.Tensor", {a, integer(0), integer(1), none()}),
      CASE("aten::split_with_sizes", {a, ints({1, 3}), integer(0)}),
      CASE("aten::unbind.int", {a, integer(1)}),
      CASE("aten::as_strided", {a, ints({2, 2}), ints({4, 1}), integer(1)}),
      CASE("aten::zeros_like", {a}),
      CASE("aten::full", {ints({3}), num(2.5), integer(6)}),
      CASE("aten::arange", {integer(5), integer(4)}),
      CASE("aten::_to_copy", {a, integer(7)}),
      CASE("aten::clone", {a, integer(0)}),
      CASE("aten::cat", {List{a, b}, integer(1)}),
      CASE("aten::stack", {List{a, b}}),
      CASE("aten::constant_pad_nd", {a, ints({1, 1}), num(0.0)}),
      CASE("aten::sum", {a}),
      CASE("aten::sum.dim_IntList", {a, ints({0}), flag(true)}),
      CASE("aten::mean.dim", {a, none(), flag(false)}),
      CASE("aten::var.correction", {a, ints({1}), num(1.0), flag(true)}),
      CASE("aten::var_mean.correction", {a, ints({1})}),
      CASE("aten::max.dim", {a, integer(1)}),
      CASE("aten::argmax", {a, none()}),
      CASE("aten::linalg_vector_norm", {a, num(2.0), ints({0})}),
      CASE("aten::topk", {a, integer(2)}),
      CASE("aten::cumsum", {a, integer(0)}),
      CASE(
          "aten::convolution",
          {image,
           image,
           none(),
           ints({1, 1}),
           ints({0, 0}),
           ints({1, 1}),
           flag(false),
           ints({0, 0}),
           integer(1)}),
      CASE(
          "aten::max_pool2d_with_indices", {image, ints({2, 2}), ints({2, 2})}),
      CASE("aten::avg_pool2d", {image, ints({2, 2}), ints({2, 2})}),
      CASE("aten::_adaptive_avg_pool2d", {image, ints({1, 1})}),
      CASE("aten::upsample_nearest2d", {image, ints({12, 12}), none(), none()}),
      CASE(
          "aten::native_layer_norm", {a, ints({4}), none(), none(), num(1e-5)}),
      CASE(
          "aten::native_group_norm",
          {image,
           none(),
           none(),
           integer(2),
           integer(4),
           integer(36),
           integer(2),
           num(1e-5)}),
      CASE(
          "aten::native_batch_norm",
          {image,
           none(),
           none(),
           none(),
           none(),
           flag(true),
           num(0.1),
           num(1e-5)}),
      CASE("aten::mse_loss", {a, b, integer(1)}),
      CASE("aten::mse_loss_backward", {a, a, b, integer(0)}),
      CASE("aten::nll_loss_forward", {a, i, none(), integer(1), integer(-100)}),
      CASE("aten::embedding", {a, i}),
      CASE(
          "aten::embedding_dense_backward",
          {a, i, integer(4), integer(-1), flag(false)}),
      CASE("aten::index.Tensor", {a, List{i}}),
      CASE("aten::index.Tensor", {a, List{graph::kNoValue, i}}),
      CASE("aten::index_add", {a, integer(0), i, b}),
      CASE("aten::index_select", {a, integer(1), i}),
      CASE("aten::index_put_", {a, List{i}, b, flag(true)}),
      CASE("aten::bernoulli_.float", {a, num(0.4)}),
      CASE("aten::normal_", {a, num(0.0), num(2.0)}),
      CASE("aten::copy_", {a, b}),
      CASE("aten::mul.out", {a, b, a}),
      CASE("aten::threshold_backward", {a, b, integer(0)}),
      CASE("aten::tril", {a}),
      CASE("aten::any", {a}),
      CASE("aten::t", {a}),
  };
#undef CASE
}

TEST(TypedKernels, GiveWhatBoxedCallsGive) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    ASSERT_NE(kernel_for(graph::find_op(each.name)), &run_boxed);
    torch::manual_seed(1);
    const std::vector<at::Tensor> inputs = {
        torch::randn({4, 4}),
        torch::rand({4, 4}),
        torch::randn({2, 4, 6, 6}),
        torch::tensor({3, 0, 1, 1})};
    RawBuilder b;
    std::vector<at::Tensor> seen = support::copy_inputs(inputs);
    const ValueId a = b.input(seen[0], "a");
    const ValueId c = b.input(seen[1], "b");
    const ValueId image = b.input(seen[2], "image");
    const ValueId i = b.input(seen[3], "i");
    for (const ValueId id : b.call(each.name, each.args(a, c, image, i))) {
      b.output(id);
    }
    EXPECT_TRUE(support::compiled_equals_raw(b.graph(), inputs));
  }
}

TEST(TypedKernels, RunAnAttentionForwardAndBackward) {
  RawBuilder b;
  std::vector<at::Tensor> inputs;
  List qkv;
  for (int n = 0; n < 3; ++n) {
    const at::Tensor x = torch::randn({2, 2, 8, 4});
    inputs.push_back(x.clone());
    qkv.push_back(b.input(x, "x"));
  }
  const auto y = b.call(
      "aten::_scaled_dot_product_flash_attention_for_cpu",
      {qkv[0], qkv[1], qkv[2], num(0.0), flag(true)});
  b.output(y[0]);
  const at::Tensor grad = torch::randn({2, 2, 8, 4});
  inputs.push_back(grad.clone());
  const auto t = b.tangent(0, grad);
  b.begin_segment({t});
  for (const ValueId id : b.call(
           "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
           {t, qkv[0], qkv[1], qkv[2], y[0], y[1], num(0.0), flag(true)})) {
    b.deliver(id);
  }
  b.end_segment();
  EXPECT_TRUE(support::compiled_equals_raw(b.graph(), inputs));
}

TEST(TypedKernels, RunAConvolutionBackwardWithUndefinedResults) {
  RawBuilder b;
  const at::Tensor x = torch::randn({2, 3, 5, 5});
  const at::Tensor w = torch::randn({4, 3, 3, 3});
  const at::Tensor grad = torch::randn({2, 4, 3, 3});
  const auto vx = b.input(x, "x");
  const auto vw = b.input(w, "w");
  const auto y = b.call1(
      "aten::convolution",
      {vx,
       vw,
       none(),
       ints({1, 1}),
       ints({0, 0}),
       ints({1, 1}),
       flag(false),
       ints({0, 0}),
       num(int64_t{1})});
  b.output(y);
  const auto t = b.tangent(0, grad);
  b.begin_segment({t});
  const auto results = b.call(
      "aten::convolution_backward",
      {t,
       vx,
       vw,
       ints({4}),
       ints({1, 1}),
       ints({0, 0}),
       ints({1, 1}),
       flag(false),
       ints({0, 0}),
       num(int64_t{1}),
       bools({false, true, true})});
  EXPECT_EQ(results[0], graph::kNoValue);
  b.deliver(results[1]);
  b.deliver(results[2]);
  b.end_segment();
  EXPECT_TRUE(support::compiled_equals_raw(b.graph(), {x, w, grad}));
}

TEST(TypedKernels, WhereTakesACondition) {
  RawBuilder b;
  const at::Tensor x = torch::randn({4});
  const auto vx = b.input(x, "x");
  const auto zero = b.call1("temper::wrapped_number", {num(0.0)});
  const auto condition = b.call1("aten::gt.Scalar", {vx, num(0.0)});
  b.output(b.call1("aten::where.self", {condition, vx, zero}));
  b.output(b.call1("aten::mul.Tensor", {vx, zero}));
  EXPECT_TRUE(support::compiled_equals_raw(b.graph(), {x}));
}

} // namespace
} // namespace temper::codegen
