// Typed kernels. Activations, dropout and their backwards.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_prelu_kernel_backward_ops.h>
#include <ATen/ops/_prelu_kernel_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/celu_ops.h>
#include <ATen/ops/elu_backward_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/glu_ops.h>
#include <ATen/ops/hardsigmoid_backward_ops.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/hardswish_backward_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_backward_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/leaky_relu_backward_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/log_sigmoid_backward_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <ATen/ops/mish_backward_ops.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rrelu_with_noise_ops.h>
#include <ATen/ops/selu_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/softplus_backward_ops.h>
#include <ATen/ops/softplus_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/threshold_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> activation_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::relu>(),
      typed<at::_ops::sigmoid>(),
      typed<at::_ops::silu>(),
      typed<at::_ops::gelu>(),
      typed<at::_ops::elu>(),
      typed<at::_ops::leaky_relu>(),
      typed<at::_ops::hardtanh>(),
      typed<at::_ops::hardswish>(),
      typed<at::_ops::hardsigmoid>(),
      typed<at::_ops::softplus>(),
      typed<at::_ops::mish>(),
      typed<at::_ops::log_sigmoid_forward>(),
      typed<at::_ops::threshold>(),
      typed<at::_ops::_prelu_kernel>(),
      typed<at::_ops::celu>(),
      typed<at::_ops::selu>(),
      typed<at::_ops::threshold_backward>(),
      typed<at::_ops::sigmoid_backward>(),
      typed<at::_ops::tanh_backward>(),
      typed<at::_ops::silu_backward>(),
      typed<at::_ops::gelu_backward>(),
      typed<at::_ops::elu_backward>(),
      typed<at::_ops::leaky_relu_backward>(),
      typed<at::_ops::hardtanh_backward>(),
      typed<at::_ops::hardswish_backward>(),
      typed<at::_ops::hardsigmoid_backward>(),
      typed<at::_ops::softplus_backward>(),
      typed<at::_ops::mish_backward>(),
      typed<at::_ops::log_sigmoid_backward>(),
      typed<at::_ops::_prelu_kernel_backward>(),
      typed<at::_ops::_softmax>(),
      typed<at::_ops::_log_softmax>(),
      typed<at::_ops::_softmax_backward_data>(),
      typed<at::_ops::_log_softmax_backward_data>(),
      typed<at::_ops::native_dropout>(),
      typed<at::_ops::native_dropout_backward>(),
      typed<at::_ops::rrelu_with_noise>(),
      typed<at::_ops::glu>(),
      typed<at::_ops::glu_backward>(),
  };
  return kEntries;
}

} // namespace temper::codegen
