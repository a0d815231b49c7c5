// Typed kernels. Arithmetic, comparison and other elementwise operators.
#include "codegen/typed_kernels.h"

#include <ATen/ops/abs_ops.h>
#include <ATen/ops/acos_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/asin_ops.h>
#include <ATen/ops/atan2_ops.h>
#include <ATen/ops/atan_ops.h>
#include <ATen/ops/bitwise_and_ops.h>
#include <ATen/ops/bitwise_not_ops.h>
#include <ATen/ops/bitwise_or_ops.h>
#include <ATen/ops/bitwise_xor_ops.h>
#include <ATen/ops/ceil_ops.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/cosh_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/erf_ops.h>
#include <ATen/ops/erfc_ops.h>
#include <ATen/ops/exp2_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expm1_ops.h>
#include <ATen/ops/floor_divide_ops.h>
#include <ATen/ops/floor_ops.h>
#include <ATen/ops/fmax_ops.h>
#include <ATen/ops/fmin_ops.h>
#include <ATen/ops/frac_ops.h>
#include <ATen/ops/ge_ops.h>
#include <ATen/ops/gt_ops.h>
#include <ATen/ops/hypot_ops.h>
#include <ATen/ops/isfinite_ops.h>
#include <ATen/ops/isinf_ops.h>
#include <ATen/ops/isnan_ops.h>
#include <ATen/ops/le_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/log10_ops.h>
#include <ATen/ops/log1p_ops.h>
#include <ATen/ops/log2_ops.h>
#include <ATen/ops/log_ops.h>
#include <ATen/ops/logical_and_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/ops/logical_or_ops.h>
#include <ATen/ops/logical_xor_ops.h>
#include <ATen/ops/lt_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/maximum_ops.h>
#include <ATen/ops/minimum_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/ne_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/round_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sgn_ops.h>
#include <ATen/ops/sign_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sinc_ops.h>
#include <ATen/ops/sinh_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/square_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/tan_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/trunc_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/xlogy_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> pointwise_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::add_Tensor>(),
      typed<at::_ops::add_Scalar>(),
      typed<at::_ops::sub_Tensor>(),
      typed<at::_ops::sub_Scalar>(),
      typed<at::_ops::rsub_Scalar>(),
      typed<at::_ops::rsub_Tensor>(),
      typed<at::_ops::mul_Tensor>(),
      typed<at::_ops::mul_Scalar>(),
      typed<at::_ops::div_Tensor>(),
      typed<at::_ops::div_Scalar>(),
      typed<at::_ops::div_Tensor_mode>(),
      typed<at::_ops::div_Scalar_mode>(),
      typed<at::_ops::floor_divide>(),
      typed<at::_ops::remainder_Scalar>(),
      typed<at::_ops::remainder_Tensor>(),
      typed<at::_ops::neg>(),
      typed<at::_ops::abs>(),
      typed<at::_ops::sgn>(),
      typed<at::_ops::sign>(),
      typed<at::_ops::exp>(),
      typed<at::_ops::exp2>(),
      typed<at::_ops::expm1>(),
      typed<at::_ops::log>(),
      typed<at::_ops::log2>(),
      typed<at::_ops::log1p>(),
      typed<at::_ops::log10>(),
      typed<at::_ops::sqrt>(),
      typed<at::_ops::rsqrt>(),
      typed<at::_ops::reciprocal>(),
      typed<at::_ops::square>(),
      typed<at::_ops::pow_Tensor_Scalar>(),
      typed<at::_ops::pow_Tensor_Tensor>(),
      typed<at::_ops::pow_Scalar>(),
      typed<at::_ops::sin>(),
      typed<at::_ops::cos>(),
      typed<at::_ops::tan>(),
      typed<at::_ops::tanh>(),
      typed<at::_ops::sinh>(),
      typed<at::_ops::cosh>(),
      typed<at::_ops::asin>(),
      typed<at::_ops::acos>(),
      typed<at::_ops::atan>(),
      typed<at::_ops::atan2>(),
      typed<at::_ops::erf>(),
      typed<at::_ops::erfc>(),
      typed<at::_ops::floor>(),
      typed<at::_ops::ceil>(),
      typed<at::_ops::round>(),
      typed<at::_ops::trunc>(),
      typed<at::_ops::clamp>(),
      typed<at::_ops::clamp_Tensor>(),
      typed<at::_ops::clamp_min>(),
      typed<at::_ops::clamp_max>(),
      typed<at::_ops::minimum>(),
      typed<at::_ops::maximum>(),
      typed<at::_ops::fmin>(),
      typed<at::_ops::fmax>(),
      typed<at::_ops::where_self>(),
      typed<at::_ops::eq_Tensor>(),
      typed<at::_ops::eq_Scalar>(),
      typed<at::_ops::ne_Tensor>(),
      typed<at::_ops::ne_Scalar>(),
      typed<at::_ops::lt_Tensor>(),
      typed<at::_ops::lt_Scalar>(),
      typed<at::_ops::le_Tensor>(),
      typed<at::_ops::le_Scalar>(),
      typed<at::_ops::gt_Tensor>(),
      typed<at::_ops::gt_Scalar>(),
      typed<at::_ops::ge_Tensor>(),
      typed<at::_ops::ge_Scalar>(),
      typed<at::_ops::logical_and>(),
      typed<at::_ops::logical_or>(),
      typed<at::_ops::logical_not>(),
      typed<at::_ops::logical_xor>(),
      typed<at::_ops::bitwise_and_Tensor>(),
      typed<at::_ops::bitwise_or_Tensor>(),
      typed<at::_ops::bitwise_not>(),
      typed<at::_ops::bitwise_xor_Tensor>(),
      typed<at::_ops::isnan>(),
      typed<at::_ops::isinf>(),
      typed<at::_ops::isfinite>(),
      typed<at::_ops::addcmul>(),
      typed<at::_ops::addcdiv>(),
      typed<at::_ops::lerp_Scalar>(),
      typed<at::_ops::lerp_Tensor>(),
      typed<at::_ops::masked_fill_Scalar>(),
      typed<at::_ops::masked_fill_Tensor>(),
      typed<at::_ops::xlogy_Tensor>(),
      typed<at::_ops::sinc>(),
      typed<at::_ops::frac>(),
      typed<at::_ops::hypot>(),
  };
  return kEntries;
}

} // namespace temper::codegen
