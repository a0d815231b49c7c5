// Typed kernels. Normalisations and their backwards.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_native_batch_norm_legit_no_training_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/_weight_norm_interface_backward_ops.h>
#include <ATen/ops/_weight_norm_interface_ops.h>
#include <ATen/ops/batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> norm_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::native_batch_norm>(),
      typed<at::_ops::native_batch_norm_backward>(),
      typed<at::_ops::_native_batch_norm_legit>(),
      typed<at::_ops::_native_batch_norm_legit_no_stats>(),
      typed<at::_ops::_native_batch_norm_legit_no_training>(),
      typed<at::_ops::native_layer_norm>(),
      typed<at::_ops::native_layer_norm_backward>(),
      typed<at::_ops::native_group_norm>(),
      typed<at::_ops::native_group_norm_backward>(),
      typed<at::_ops::_batch_norm_with_update>(),
      typed<at::_ops::batch_norm_backward>(),
      typed<at::_ops::_weight_norm_interface>(),
      typed<at::_ops::_weight_norm_interface_backward>(),
      typed<at::_ops::_fused_rms_norm>(),
      typed<at::_ops::_fused_rms_norm_backward>(),
  };
  return kEntries;
}

} // namespace temper::codegen
