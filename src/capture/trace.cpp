// What the tensors of a trace are, and where at a call.
#include "capture/trace.h"

#include <c10/core/UndefinedTensorImpl.h>

namespace temper::capture {

at::Tensor Binding::tensor(const std::vector<at::Tensor>& arguments) const {
  if (argument >= 0) {
    return arguments[static_cast<size_t>(argument)];
  }
  // Guards have seen this very object in the watched state.
  return at::Tensor(
      c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(
          watched));
}

bool is_recordable(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() &&
      tensor.unsafeGetTensorImpl()->has_storage() && !tensor.is_quantized();
}

at::Tensor memory_of(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(
      impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

} // namespace temper::capture
