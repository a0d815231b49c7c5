// Making shadows of arguments, and giving back what the code did to them.
#include "capture/shadow_arguments.h"

#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "capture/shadow_tensor.h"

namespace temper::capture {
namespace {

namespace autograd = torch::autograd;

std::string name_of(const Trace& trace, size_t argument) {
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    if (trace.bindings[i].argument == static_cast<int32_t>(argument)) {
      return "'" + trace.graph.inputs[i].name + "'";
    }
  }
  return "'argument " + std::to_string(argument) + "'";
}

// `Storage::is_alias_of` may look at the data.
bool same_storage(const c10::Storage& a, const c10::Storage& b) {
  return a.unsafeGetStorageImpl() == b.unsafeGetStorageImpl();
}

// The node and output that made a tensor; invalid for leaves.
autograd::Edge history(const at::Tensor& tensor) {
  return tensor.grad_fn() == nullptr ? autograd::Edge()
                                     : autograd::impl::gradient_edge(tensor);
}

} // namespace

ShadowArguments::ShadowArguments(
    const Trace& trace,
    const std::vector<at::Tensor>& originals)
    : trace_(trace), originals_(originals), starts_(originals.size()) {
  // A batch may be a slice of another tensor: its offset is free. Shadows have
  // the trace's offset, by which values are recognised.
  std::vector<size_t> nbytes(originals_.size());
  for (size_t a = 0; a < originals_.size(); ++a) {
    const auto& original = originals_[a];
    if (original.defined() && original.unsafeGetTensorImpl()->has_storage()) {
      starts_[a].offset = original.storage_offset();
      nbytes[a] = original.storage().nbytes();
    }
  }
  std::vector<bool> bound(originals_.size());
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    if (const auto argument = trace.bindings[i].argument; argument >= 0) {
      const auto& info =
          trace.values[static_cast<size_t>(trace.graph.inputs[i].value)];
      const auto a = static_cast<size_t>(argument);
      bound[a] = true;
      starts_[a].offset = info.offset;
      nbytes[a] = std::max(
          nbytes[a], trace.storages[static_cast<size_t>(info.storage)].nbytes);
    }
  }
  // One that no op has used lies where it does beside those in its storage.
  for (size_t a = 0; a < originals_.size(); ++a) {
    for (size_t b = 0; b < originals_.size() && !bound[a]; ++b) {
      if (bound[b] && nbytes[a] > 0 && nbytes[b] > 0 &&
          same_storage(originals_[a].storage(), originals_[b].storage())) {
        starts_[a].offset -=
            shift(b) / static_cast<int64_t>(originals_[a].itemsize());
        break;
      }
    }
  }
  for (size_t a = 0; a < originals_.size(); ++a) {
    const auto& original = originals_[a];
    auto& start = starts_[a];
    if (!original.defined() || !original.unsafeGetTensorImpl()->has_storage()) {
      shadows_.push_back(original);
      continue;
    }
    for (size_t i = 0; i < a; ++i) {
      if (originals_[i].is_same(original)) {
        start = starts_[i]; // The same object twice stays one object.
      } else if (
          !start.storage && starts_[i].shadow.defined() &&
          same_storage(originals_[i].storage(), original.storage())) {
        start.storage = starts_[i].storage;
      }
    }
    if (!start.storage) {
      start.storage = make_shadow_storage(nbytes[a], original.device());
    }
    if (!start.shadow.defined()) {
      start.first = a;
      make_shadow(original, start);
    }
    shadows_.push_back(start.shadow);
  }
}

void ShadowArguments::make_shadow(const at::Tensor& original, Start& start) {
  // In inference mode, too, a normal tensor's shadow is a normal one.
  const c10::InferenceMode as_original(original.is_inference());
  start.shadow = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(start.storage), original.key_set(), original.dtype());
  auto& shadow = *start.shadow.unsafeGetTensorImpl();
  shadow.set_sizes_and_strides(
      original.sizes(), original.strides(), start.offset);
  const auto& impl = *original.unsafeGetTensorImpl();
  if (impl.is_wrapped_number()) {
    shadow.set_wrapped_number(true);
  }
  if (!original.is_inference()) {
    shadow.set_version_counter(impl.version_counter());
  }
  if (original.requires_grad()) {
    start.history = history(original);
    if (start.history.is_valid()) {
      autograd::impl::set_gradient_edge(start.shadow, start.history);
    } else {
      start.shadow.set_requires_grad(true);
      auto accumulator = autograd::impl::grad_accumulator(original);
      autograd::impl::set_grad_accumulator(
          start.shadow, c10::weak_intrusive_ptr<autograd::Node>(accumulator));
      accumulators_.push_back(std::move(accumulator));
    }
  }
  const auto* meta = autograd::impl::get_autograd_meta(original);
  if (meta != nullptr && meta->grad_.defined()) {
    start.shadow.mutable_grad() = meta->grad_;
  }
  start.object = ObjectState::of(start.shadow);
  start.requires_grad = original.requires_grad();
}

at::Tensor ShadowArguments::original(const at::Tensor& tensor) const {
  for (size_t i = 0; i < shadows_.size(); ++i) {
    if (shadows_[i].defined() && shadows_[i].is_same(tensor)) {
      return originals_[i];
    }
  }
  return tensor;
}

bool ShadowArguments::has_new_history(const Start& start) {
  return start.shadow.requires_grad() != start.requires_grad ||
      !(history(start.shadow) == start.history);
}

bool ShadowArguments::has_new_metadata(size_t argument) const {
  const auto& shadow = *shadows_[argument].unsafeGetTensorImpl();
  const auto& original = *originals_[argument].unsafeGetTensorImpl();
  const auto& storage = shadow.unsafe_storage();
  const bool at_home = same_storage(storage, starts_[argument].storage);
  return !(at_home || same_storage(storage, original.unsafe_storage())) ||
      shadow.sizes() != original.sizes() ||
      shadow.strides() != original.strides() ||
      shadow.dtype() != original.dtype() ||
      shadow.storage_offset() !=
      (at_home ? starts_[argument].offset : original.storage_offset());
}

std::string ShadowArguments::change(
    const std::vector<int32_t>& rewritten) const {
  for (size_t a = 0; a < originals_.size(); ++a) {
    const auto& start = starts_[a];
    if (!start.shadow.defined()) {
      continue;
    }
    const auto now = ObjectState::of(start.shadow);
    const char* what = start.object.change(now);
    if (what == nullptr && start.object.grad != now.grad) {
      what = "gives a gradient to"; // No other thread can.
    }
    if (what == nullptr && has_new_metadata(a)) {
      what = "changes the metadata of";
    }
    const bool is_rewritten =
        std::find(
            rewritten.begin(), rewritten.end(), static_cast<int32_t>(a)) !=
        rewritten.end();
    if (what == nullptr && has_new_history(start) != is_rewritten) {
      what = "changes the history of";
    }
    if (what != nullptr) {
      return c10::str("the call ", what, " ", name_of(trace_, a));
    }
  }
  return "";
}

void ShadowArguments::drop_histories(const std::vector<int32_t>& rewritten) {
  for (const auto argument : rewritten) {
    autograd::impl::set_gradient_edge(
        shadows_[static_cast<size_t>(argument)], autograd::Edge());
  }
}

int32_t ShadowArguments::kept() const {
  for (size_t a = 0; a < starts_.size(); ++a) {
    const auto& start = starts_[a];
    if (!start.shadow.defined()) {
      continue;
    }
    // By its storage, so that views and `.data()` count, too: each `Start`
    // holds it, and each shadow once. A shadow is held twice for each time that
    // it is passed.
    int64_t holders = 0;
    int64_t passed = 0;
    for (size_t i = 0; i < starts_.size(); ++i) {
      const auto& other = starts_[i];
      if (!other.shadow.defined() ||
          !same_storage(other.storage, start.storage)) {
        continue;
      }
      holders += other.first == i ? 2 : 1;
      passed += other.first == start.first ? 1 : 0;
    }
    if (static_cast<int64_t>(start.storage.use_count()) > holders ||
        static_cast<int64_t>(start.shadow.use_count()) > 2 * passed) {
      return static_cast<int32_t>(a);
    }
  }
  return -1;
}

void ShadowArguments::share_memory() {
  for (size_t a = 0; a < originals_.size(); ++a) {
    if (!starts_[a].shadow.defined()) {
      continue;
    }
    auto* shadow = starts_[a].storage.unsafeGetStorageImpl();
    if (!shadow->throw_on_immutable_data_ptr()) {
      continue;
    }
    const auto& real = originals_[a].storage();
    auto keep = std::make_unique<c10::Storage>(real);
    auto* data = static_cast<char*>(
                     const_cast<void*>(real.unsafeGetStorageImpl()->data())) +
        shift(a);
    shadow->clear_data_ptr_access_error_msg_();
    shadow->set_data_ptr_noswap(at::DataPtr(
        data,
        keep.release(),
        [](void* context) { delete static_cast<c10::Storage*>(context); },
        originals_[a].device()));
  }
}

// From a shadow's place in its storage to the original's, in bytes.
int64_t ShadowArguments::shift(size_t argument) const {
  const auto& real = originals_[argument];
  return (real.storage_offset() - starts_[argument].offset) *
      static_cast<int64_t>(real.itemsize());
}

void ShadowArguments::move_home(const at::Tensor& tensor, size_t argument)
    const {
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto& start = starts_[argument];
  if (start.shadow.defined() && impl->has_storage() &&
      same_storage(impl->unsafe_storage(), start.storage)) {
    impl->set_storage_keep_dtype(originals_[argument].storage());
    impl->set_storage_offset(
        impl->storage_offset() +
        shift(argument) / static_cast<int64_t>(impl->itemsize()));
  }
}

std::string ShadowArguments::give_back() {
  std::string problem;
  for (size_t a = 0; a < originals_.size(); ++a) {
    const auto& start = starts_[a];
    const auto& original = originals_[a];
    if (!start.shadow.defined() || start.first != a) {
      continue;
    }
    if (has_new_metadata(a)) {
      original.unsafeGetTensorImpl()->shallow_copy_from(
          start.shadow.getIntrusivePtr());
    }
    if (has_new_history(start) && !give_history(start, original)) {
      problem = c10::str(
          "the call wrote to ",
          name_of(trace_, a),
          ", a view with a history, more than once, where an earlier call did "
          "something else; it has its values but not its gradients. Call it "
          "without compile(), or write to a clone");
    }
    give_object(start, original);
  }
  return problem;
}

bool ShadowArguments::give_history(
    const Start& start,
    const at::Tensor& original) {
  auto edge = history(start.shadow);
  if (!edge.is_valid()) {
    if (start.history.is_valid()) {
      original.detach_();
    }
    original.set_requires_grad(start.shadow.requires_grad());
    return true;
  }
  if (!original.is_view()) {
    autograd::impl::rebase_history(original, std::move(edge));
    return true;
  }
  // LibTorch puts the node of a write to a view between the histories of its
  // base: one node, whose first edge leads to what was there.
  if (edge == start.history) {
    return true;
  }
  const bool one_write = edge.function->num_outputs() > 0 &&
      edge.function->next_edge(0) == start.history;
  if (one_write) {
    autograd::impl::rebase_history(original, std::move(edge));
  }
  return one_write;
}

void ShadowArguments::give_object(
    const Start& start,
    const at::Tensor& original) {
  const auto now = ObjectState::of(start.shadow);
  const auto& was = start.object;
  const auto* meta = autograd::impl::get_autograd_meta(start.shadow);
  if (meta == nullptr) {
    return;
  }
  if (now.grad != was.grad) {
    original.mutable_grad() = meta->grad_;
  }
  if (now.retains_grad && !original.retains_grad()) {
    original.retain_grad();
  }
  if (now.hooks == was.hooks) {
    return;
  }
  // Hooks on a tensor with a history are on its node, which is shared.
  if (!history(start.shadow).is_valid() && meta->cpp_hooks_list_) {
    for (const auto& hook : *meta->cpp_hooks_list_) {
      if (hook) {
        original.register_hook([hook](const at::Tensor& gradient) {
          return at::Tensor(hook(gradient));
        });
      }
    }
  }
  auto& after = autograd::impl::post_acc_grad_hooks(start.shadow);
  if (after) {
    autograd::impl::set_post_acc_grad_hooks(original, std::move(after));
  }
}

} // namespace temper::capture
