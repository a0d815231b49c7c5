// Typed kernels. Reductions and scans.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/argmax_ops.h>
#include <ATen/ops/argmin_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_ops.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/logsumexp_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/median_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/topk_ops.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> reduction_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::sum>(),
      typed<at::_ops::sum_dim_IntList>(),
      typed<at::_ops::mean>(),
      typed<at::_ops::mean_dim>(),
      typed<at::_ops::amax>(),
      typed<at::_ops::amin>(),
      typed<at::_ops::max>(),
      typed<at::_ops::min>(),
      typed<at::_ops::max_dim>(),
      typed<at::_ops::min_dim>(),
      typed<at::_ops::argmax>(),
      typed<at::_ops::argmin>(),
      typed<at::_ops::var_correction>(),
      typed<at::_ops::std_correction>(),
      typed<at::_ops::var_mean_correction>(),
      typed<at::_ops::prod>(),
      typed<at::_ops::prod_dim_int>(),
      typed<at::_ops::any>(),
      typed<at::_ops::any_dim>(),
      typed<at::_ops::all>(),
      typed<at::_ops::all_dim>(),
      typed<at::_ops::cumsum>(),
      typed<at::_ops::cumprod>(),
      typed<at::_ops::logsumexp>(),
      typed<at::_ops::linalg_vector_norm>(),
      typed<at::_ops::norm_Scalar>(),
      typed<at::_ops::norm_ScalarOpt_dim>(),
      typed<at::_ops::topk>(),
      typed<at::_ops::sort>(),
      typed<at::_ops::sort_stable>(),
      typed<at::_ops::count_nonzero>(),
      typed<at::_ops::_cdist_forward>(),
      typed<at::_ops::median>(),
  };
  return kEntries;
}

} // namespace temper::codegen
