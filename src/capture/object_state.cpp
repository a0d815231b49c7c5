// Reading and comparing what tensor objects carry.
#include "capture/object_state.h"

#include <torch/csrc/autograd/variable.h>

namespace temper::capture {

ObjectState ObjectState::of(const at::Tensor& tensor) {
  ObjectState state;
  if (!tensor.defined()) {
    return state;
  }
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (impl.has_storage()) {
    state.storage = impl.unsafe_storage().unsafeGetStorageImpl();
  }
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  if (meta != nullptr) {
    if (meta->grad_.defined()) {
      state.grad = meta->grad_.unsafeGetTensorImpl();
    }
    state.hooks = meta->hooks_.size() +
        (meta->cpp_hooks_list_ ? meta->cpp_hooks_list_->size() : 0) +
        (meta->post_acc_grad_hooks_ ? 1 : 0);
    state.retains_grad = meta->retains_grad_;
  }
  return state;
}

const char* ObjectState::change(const ObjectState& now) const {
  if (storage != now.storage) {
    return "replaces the memory of";
  }
  if (grad != nullptr && grad != now.grad) {
    return "replaces or resets the gradient of";
  }
  if (now.hooks > hooks) { // LibTorch drops them where a history is replaced.
    return "adds a hook to";
  }
  if (retains_grad != now.retains_grad) {
    return "calls retain_grad() on";
  }
  return nullptr;
}

} // namespace temper::capture
