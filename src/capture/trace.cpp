// Where the tensors of a trace are at a call.
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

} // namespace temper::capture
