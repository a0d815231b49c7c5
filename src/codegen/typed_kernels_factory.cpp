// Typed kernels. Factories, copies and joins.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_efficientzerotensor_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/constant_pad_nd_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <ATen/ops/eye_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/flip_ops.h>
#include <ATen/ops/full_like_ops.h>
#include <ATen/ops/full_ops.h>
#include <ATen/ops/lift_fresh_ops.h>
#include <ATen/ops/linspace_ops.h>
#include <ATen/ops/new_empty_ops.h>
#include <ATen/ops/new_empty_strided_ops.h>
#include <ATen/ops/new_full_ops.h>
#include <ATen/ops/new_ones_ops.h>
#include <ATen/ops/new_zeros_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/ones_ops.h>
#include <ATen/ops/rand_like_ops.h>
#include <ATen/ops/rand_ops.h>
#include <ATen/ops/randint_ops.h>
#include <ATen/ops/randn_like_ops.h>
#include <ATen/ops/randn_ops.h>
#include <ATen/ops/randperm_ops.h>
#include <ATen/ops/repeat_ops.h>
#include <ATen/ops/roll_ops.h>
#include <ATen/ops/scalar_tensor_ops.h>
#include <ATen/ops/select_backward_ops.h>
#include <ATen/ops/select_scatter_ops.h>
#include <ATen/ops/slice_backward_ops.h>
#include <ATen/ops/slice_scatter_ops.h>
#include <ATen/ops/split_with_sizes_copy_ops.h>
#include <ATen/ops/stack_ops.h>
#include <ATen/ops/tril_ops.h>
#include <ATen/ops/triu_ops.h>
#include <ATen/ops/zeros_like_ops.h>
#include <ATen/ops/zeros_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> factory_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::empty_memory_format>(),
      typed<at::_ops::empty_like>(),
      typed<at::_ops::empty_strided>(),
      typed<at::_ops::new_empty>(),
      typed<at::_ops::new_empty_strided>(),
      typed<at::_ops::new_zeros>(),
      typed<at::_ops::new_ones>(),
      typed<at::_ops::new_full>(),
      typed<at::_ops::zeros>(),
      typed<at::_ops::zeros_like>(),
      typed<at::_ops::ones>(),
      typed<at::_ops::ones_like>(),
      typed<at::_ops::full>(),
      typed<at::_ops::full_like>(),
      typed<at::_ops::arange>(),
      typed<at::_ops::arange_start>(),
      typed<at::_ops::arange_start_step>(),
      typed<at::_ops::scalar_tensor>(),
      typed<at::_ops::rand>(),
      typed<at::_ops::rand_like>(),
      typed<at::_ops::randn>(),
      typed<at::_ops::randn_like>(),
      typed<at::_ops::randint>(),
      typed<at::_ops::randperm>(),
      typed<at::_ops::bernoulli>(),
      typed<at::_ops::bernoulli_p>(),
      typed<at::_ops::eye>(),
      typed<at::_ops::linspace>(),
      typed<at::_ops::tril>(),
      typed<at::_ops::triu>(),
      typed<at::_ops::clone>(),
      typed<at::_ops::_to_copy>(),
      typed<at::_ops::cat>(),
      typed<at::_ops::stack>(),
      typed<at::_ops::constant_pad_nd>(),
      typed<at::_ops::slice_backward>(),
      typed<at::_ops::select_backward>(),
      typed<at::_ops::repeat>(),
      typed<at::_ops::roll>(),
      typed<at::_ops::flip>(),
      typed<at::_ops::lift_fresh>(),
      typed<at::_ops::_efficientzerotensor>(),
      typed<at::_ops::slice_scatter>(),
      typed<at::_ops::select_scatter>(),
      typed<at::_ops::copy>(),
      typed<at::_ops::split_with_sizes_copy>(),
      typed<at::_ops::fill_Scalar>(),
  };
  return kEntries;
}

} // namespace temper::codegen
