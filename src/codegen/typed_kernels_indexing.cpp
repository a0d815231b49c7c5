// Typed kernels. Indexing, embeddings, gathers and scatters.
#include "codegen/typed_kernels.h"

#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_index_put_impl_ops.h>
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/embedding_renorm_ops.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_copy_ops.h>
#include <ATen/ops/index_fill_ops.h>
#include <ATen/ops/index_ops.h>
#include <ATen/ops/index_put_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/masked_scatter_ops.h>
#include <ATen/ops/masked_select_ops.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/searchsorted_ops.h>
#include <ATen/ops/take_ops.h>

namespace temper::codegen {

c10::ArrayRef<KernelEntry> indexing_kernels() {
  static constexpr KernelEntry kEntries[] = {
      typed<at::_ops::embedding>(),
      typed<at::_ops::embedding_dense_backward>(),
      typed<at::_ops::_embedding_bag>(),
      typed<at::_ops::_embedding_bag_forward_only>(),
      typed<at::_ops::_embedding_bag_dense_backward>(),
      typed<at::_ops::embedding_renorm_>(),
      typed<at::_ops::index_Tensor>(),
      typed<at::_ops::index_put>(),
      typed<at::_ops::index_put_>(),
      typed<at::_ops::_index_put_impl_>(),
      typed<at::_ops::index_add>(),
      typed<at::_ops::index_add_>(),
      typed<at::_ops::index_select>(),
      typed<at::_ops::index_copy>(),
      typed<at::_ops::index_fill_int_Scalar>(),
      typed<at::_ops::gather>(),
      typed<at::_ops::scatter_src>(),
      typed<at::_ops::scatter_value>(),
      typed<at::_ops::scatter__src>(),
      typed<at::_ops::scatter__value>(),
      typed<at::_ops::scatter_add>(),
      typed<at::_ops::scatter_add_>(),
      typed<at::_ops::masked_select>(),
      typed<at::_ops::take>(),
      typed<at::_ops::bucketize_Tensor>(),
      typed<at::_ops::searchsorted_Tensor>(),
      typed<at::_ops::masked_scatter>(),
      typed<at::_ops::index_copy_>(),
  };
  return kEntries;
}

} // namespace temper::codegen
