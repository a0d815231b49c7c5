// Typed kernels. Matrix products, attention and recurrent cells.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_scaled_dot_product_attention_math_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/_thnn_fused_lstm_cell_ops.h>
#include <ATen/ops/_trilinear_ops.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/addr_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_ops.h>
#include <ATen/ops/mkldnn_rnn_layer_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mv_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> matmul_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::mm>(),
      typed<at::_ops::addmm>(),
      typed<at::_ops::bmm>(),
      typed<at::_ops::baddbmm>(),
      typed<at::_ops::addmv>(),
      typed<at::_ops::mv>(),
      typed<at::_ops::dot>(),
      typed<at::_ops::addbmm>(),
      typed<at::_ops::addr>(),
      typed<at::_ops::mm_out>(),
      typed<at::_ops::addmm_out>(),
      typed<at::_ops::bmm_out>(),
      typed<at::_ops::_scaled_dot_product_flash_attention_for_cpu>(),
      typed<at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward>(),
      typed<at::_ops::_scaled_dot_product_attention_math>(),
      typed<at::_ops::_trilinear>(),
      typed<at::_ops::mkldnn_rnn_layer>(),
      typed<at::_ops::mkldnn_rnn_layer_backward>(),
      typed<at::_ops::_thnn_fused_lstm_cell>(),
      typed<at::_ops::addmm_>(),
      typed<at::_ops::baddbmm_>(),
  };
  return kEntries;
}

} // namespace temper::codegen
