// Kernels and registration of temper's own operators.
#include "ops/synthetic.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <cstring>

#include "base/error.h"
#include "graph/build.h"

namespace temper::ops {

namespace {

at::Tensor run_wrapped_number(const c10::Scalar& value) {
  at::Tensor result = at::scalar_tensor(value, at::TensorOptions(value.type()));
  result.unsafeGetTensorImpl()->set_wrapped_number(true);
  return result;
}

int hex_digit(char c) {
  return c >= 'a' ? c - 'a' + 10 : c - '0';
}

at::Tensor run_literal(
    c10::string_view hex,
    at::IntArrayRef size,
    at::ScalarType dtype) {
  at::Tensor result = at::empty(size, at::TensorOptions(dtype));
  TEMPER_CHECK(
      hex.size() == 2 * result.nbytes(),
      "a literal of ",
      result.nbytes(),
      " bytes has ",
      hex.size(),
      " hex digits, expected two a byte");
  auto* bytes = static_cast<unsigned char*>(result.data_ptr());
  for (size_t i = 0; i < result.nbytes(); ++i) {
    bytes[i] = static_cast<unsigned char>(
        hex_digit(hex[2 * i]) * 16 + hex_digit(hex[2 * i + 1]));
  }
  return result;
}

at::Tensor run_copy_memory(const at::Tensor& self, bool whole_storage) {
  if (!whole_storage && self.is_non_overlapping_and_dense()) {
    return self.clone();
  }
  int64_t extent = self.numel() == 0 ? 0 : 1;
  for (int64_t dim = 0; dim < self.dim() && extent > 0; ++dim) {
    extent += (self.size(dim) - 1) * self.stride(dim);
  }
  int64_t offset = 0;
  int64_t first = self.storage_offset();
  if (whole_storage) {
    offset = first;
    first = 0;
    extent = static_cast<int64_t>(self.storage().nbytes() / self.itemsize());
  }
  const at::Tensor memory = self.as_strided({extent}, {1}, first).clone();
  return memory.as_strided(self.sizes(), self.strides(), offset);
}

at::Tensor run_write_through(
    const at::Tensor& base,
    const at::Tensor& view,
    const at::Tensor& content) {
  // The region is found by the view's geometry within the base's memory.
  const at::Tensor result = run_copy_memory(base, true);
  result.as_strided(view.sizes(), view.strides(), view.storage_offset())
      .copy_(content);
  return result;
}

void run_expect_layout(
    const at::Tensor& self,
    c10::SymIntArrayRef size,
    c10::SymIntArrayRef stride,
    c10::string_view made_by) {
  if (self.sym_sizes() == size && self.sym_strides() == stride) {
    return;
  }
  throw UnexpectedLayout(
      std::string(made_by),
      c10::str(
          made_by,
          " returned a tensor of sizes ",
          self.sizes(),
          " and strides ",
          self.strides(),
          " in a compiled call, expected ",
          size,
          " and ",
          stride,
          " as recorded: they depend on data. Register the operator with the "
          "tag dynamic_output_shape, or call it outside of what is compiled"));
}

} // namespace

TORCH_LIBRARY(temper, library)
{
  library.def("wrapped_number(Scalar value) -> Tensor");
  library.def("literal(str hex, int[] size, ScalarType dtype) -> Tensor");
  library.def(
      "write_through(Tensor base, Tensor view, Tensor content) -> Tensor");
  library.def("copy_memory(Tensor self, bool whole_storage=False) -> Tensor");
  library.def(
      "expect_layout(Tensor self, SymInt[] size, SymInt[] stride, str made_by) "
      "-> ()");
}

TORCH_LIBRARY_IMPL(temper, CompositeExplicitAutograd, library) {
  library.impl("wrapped_number", &run_wrapped_number);
  library.impl("literal", &run_literal);
  library.impl("write_through", &run_write_through);
  library.impl("copy_memory", &run_copy_memory);
  library.impl("expect_layout", &run_expect_layout);
}

c10::OperatorHandle wrapped_number() {
  return graph::find_op("temper::wrapped_number");
}

c10::OperatorHandle literal() {
  return graph::find_op("temper::literal");
}

c10::OperatorHandle write_through() {
  return graph::find_op("temper::write_through");
}

c10::OperatorHandle copy_memory() {
  return graph::find_op("temper::copy_memory");
}

c10::OperatorHandle expect_layout() {
  return graph::find_op("temper::expect_layout");
}

bool is_write_through(const c10::OperatorHandle& op) {
  return op == write_through();
}

std::string literal_bytes(const at::Tensor& tensor) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const at::Tensor source = tensor.contiguous();
  const auto* bytes = static_cast<const unsigned char*>(source.data_ptr());
  std::string hex;
  hex.reserve(2 * source.nbytes());
  for (size_t i = 0; i < source.nbytes(); ++i) {
    hex.push_back(kDigits[bytes[i] >> 4U]);
    hex.push_back(kDigits[bytes[i] & 15U]);
  }
  return hex;
}

} // namespace temper::ops
