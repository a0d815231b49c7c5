// Typed kernels. Views.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_conj_ops.h>
#include <ATen/ops/_reshape_alias_ops.h>
#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/detach_ops.h>
#include <ATen/ops/diagonal_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/split_ops.h>
#include <ATen/ops/split_with_sizes_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unbind_ops.h>
#include <ATen/ops/unfold_ops.h>
#include <ATen/ops/unsafe_split_ops.h>
#include <ATen/ops/unsafe_split_with_sizes_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_as_complex_ops.h>
#include <ATen/ops/view_as_real_ops.h>
#include <ATen/ops/view_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> view_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::view>(),
      typed<at::_ops::view_dtype>(),
      typed<at::_ops::_unsafe_view>(),
      typed<at::_ops::_reshape_alias>(),
      typed<at::_ops::t>(),
      typed<at::_ops::transpose_int>(),
      typed<at::_ops::permute>(),
      typed<at::_ops::expand>(),
      typed<at::_ops::unsqueeze>(),
      typed<at::_ops::squeeze>(),
      typed<at::_ops::squeeze_dim>(),
      typed<at::_ops::squeeze_dims>(),
      typed<at::_ops::slice_Tensor>(),
      typed<at::_ops::select_int>(),
      typed<at::_ops::split_Tensor>(),
      typed<at::_ops::split_with_sizes>(),
      typed<at::_ops::unsafe_split_Tensor>(),
      typed<at::_ops::unsafe_split_with_sizes>(),
      typed<at::_ops::unbind_int>(),
      typed<at::_ops::as_strided>(),
      typed<at::_ops::alias>(),
      typed<at::_ops::detach>(),
      typed<at::_ops::diagonal>(),
      typed<at::_ops::unfold>(),
      typed<at::_ops::view_as_real>(),
      typed<at::_ops::view_as_complex>(),
      typed<at::_ops::_conj>(),
  };
  return kEntries;
}

} // namespace temper::codegen
