// Typed kernels. Elementwise operators that write to an operand.
#include "codegen/typed_kernels.h"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <ATen/ops/zero_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> pointwise_inplace_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::add__Tensor>(),
      typed<at::_ops::add__Scalar>(),
      typed<at::_ops::sub__Tensor>(),
      typed<at::_ops::sub__Scalar>(),
      typed<at::_ops::mul__Tensor>(),
      typed<at::_ops::mul__Scalar>(),
      typed<at::_ops::div__Tensor>(),
      typed<at::_ops::div__Scalar>(),
      typed<at::_ops::neg_>(),
      typed<at::_ops::abs_>(),
      typed<at::_ops::exp_>(),
      typed<at::_ops::log_>(),
      typed<at::_ops::sqrt_>(),
      typed<at::_ops::rsqrt_>(),
      typed<at::_ops::reciprocal_>(),
      typed<at::_ops::pow__Scalar>(),
      typed<at::_ops::sigmoid_>(),
      typed<at::_ops::tanh_>(),
      typed<at::_ops::relu_>(),
      typed<at::_ops::clamp_>(),
      typed<at::_ops::clamp_min_>(),
      typed<at::_ops::clamp_max_>(),
      typed<at::_ops::addcmul_>(),
      typed<at::_ops::addcdiv_>(),
      typed<at::_ops::lerp__Scalar>(),
      typed<at::_ops::lerp__Tensor>(),
      typed<at::_ops::masked_fill__Scalar>(),
      typed<at::_ops::masked_fill__Tensor>(),
      typed<at::_ops::zero_>(),
      typed<at::_ops::fill__Scalar>(),
      typed<at::_ops::fill__Tensor>(),
      typed<at::_ops::copy_>(),
      typed<at::_ops::bernoulli__float>(),
      typed<at::_ops::bernoulli__Tensor>(),
      typed<at::_ops::uniform_>(),
      typed<at::_ops::normal_>(),
      typed<at::_ops::random_>(),
      typed<at::_ops::exponential_>(),
      typed<at::_ops::silu_>(),
      typed<at::_ops::leaky_relu_>(),
      typed<at::_ops::hardtanh_>(),
      typed<at::_ops::threshold_>(),
      typed<at::_ops::elu_>(),
      typed<at::_ops::gelu_>(),
      typed<at::_ops::sin_>(),
      typed<at::_ops::cos_>(),
      typed<at::_ops::floor_>(),
      typed<at::_ops::round_>(),
      typed<at::_ops::logical_not_>(),
      typed<at::_ops::add_out>(),
      typed<at::_ops::mul_out>(),
      typed<at::_ops::sub_out>(),
      typed<at::_ops::div_out>(),
  };
  return kEntries;
}

} // namespace temper::codegen
