// Typed kernels. Losses and their backwards.
#include "codegen/typed_kernels.h"

#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/binary_cross_entropy_with_logits_ops.h>
#include <ATen/ops/huber_loss_backward_ops.h>
#include <ATen/ops/huber_loss_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/multi_margin_loss_ops.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/nll_loss2d_forward_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/smooth_l1_loss_backward_ops.h>
#include <ATen/ops/smooth_l1_loss_ops.h>
#include <ATen/ops/soft_margin_loss_backward_ops.h>
#include <ATen/ops/soft_margin_loss_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> loss_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::nll_loss_forward>(),
      typed<at::_ops::nll_loss_backward>(),
      typed<at::_ops::nll_loss2d_forward>(),
      typed<at::_ops::nll_loss2d_backward>(),
      typed<at::_ops::mse_loss>(),
      typed<at::_ops::mse_loss_backward>(),
      typed<at::_ops::binary_cross_entropy>(),
      typed<at::_ops::binary_cross_entropy_backward>(),
      typed<at::_ops::binary_cross_entropy_with_logits>(),
      typed<at::_ops::smooth_l1_loss>(),
      typed<at::_ops::smooth_l1_loss_backward>(),
      typed<at::_ops::huber_loss>(),
      typed<at::_ops::huber_loss_backward>(),
      typed<at::_ops::soft_margin_loss>(),
      typed<at::_ops::soft_margin_loss_backward>(),
      typed<at::_ops::multi_margin_loss>(),
  };
  return kEntries;
}

} // namespace temper::codegen
