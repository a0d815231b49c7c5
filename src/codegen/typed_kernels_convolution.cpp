// Typed kernels. Convolutions, pooling and resampling.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_convolution_ops.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/col2im_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/grid_sampler_2d_ops.h>
#include <ATen/ops/im2col_ops.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>
#include <ATen/ops/mkldnn_convolution_ops.h>
#include <ATen/ops/pixel_shuffle_ops.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> convolution_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::convolution>(),
      typed<at::_ops::convolution_backward>(),
      typed<at::_ops::_convolution>(),
      typed<at::_ops::mkldnn_convolution>(),
      typed<at::_ops::max_pool2d_with_indices>(),
      typed<at::_ops::max_pool2d_with_indices_backward>(),
      typed<at::_ops::avg_pool2d>(),
      typed<at::_ops::avg_pool2d_backward>(),
      typed<at::_ops::_adaptive_avg_pool2d>(),
      typed<at::_ops::_adaptive_avg_pool2d_backward>(),
      typed<at::_ops::adaptive_max_pool2d>(),
      typed<at::_ops::adaptive_max_pool2d_backward>(),
      typed<at::_ops::max_pool3d_with_indices>(),
      typed<at::_ops::avg_pool3d>(),
      typed<at::_ops::upsample_nearest1d>(),
      typed<at::_ops::upsample_nearest2d>(),
      typed<at::_ops::upsample_nearest2d_backward>(),
      typed<at::_ops::upsample_bilinear2d>(),
      typed<at::_ops::upsample_bilinear2d_backward>(),
      typed<at::_ops::upsample_linear1d>(),
      typed<at::_ops::upsample_bicubic2d>(),
      typed<at::_ops::reflection_pad1d>(),
      typed<at::_ops::reflection_pad2d>(),
      typed<at::_ops::replication_pad1d>(),
      typed<at::_ops::replication_pad2d>(),
      typed<at::_ops::im2col>(),
      typed<at::_ops::col2im>(),
      typed<at::_ops::grid_sampler_2d>(),
      typed<at::_ops::pixel_shuffle>(),
  };
  return kEntries;
}

} // namespace temper::codegen
