// Reading, comparing and printing the metadata of tensors.
#include "dispatch/watch_tensor.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/variable.h>

#include <typeinfo>

#include "capture/shadow_tensor.h"

namespace temper::dispatch {

uint32_t autograd_bits(const c10::TensorImpl& impl) {
  uint32_t bits = impl.is_wrapped_number() ? uint32_t{kWrappedNumber} : 0;
  const auto* meta =
      static_cast<const torch::autograd::AutogradMeta*>(impl.autograd_meta());
  if (meta == nullptr) {
    return bits;
  }
  bool non_leaf = meta->grad_fn_.defined();
  // For most tensors without the virtual call.
  if (meta->is_view_ ? meta->requires_grad()
                     : meta->requires_grad_ || non_leaf) {
    bits |= kRequiresGrad;
  }
  if (meta->fw_grad_ != nullptr) {
    bits |= kForwardGrad;
  }
  if (meta->is_view_) {
    const auto* view =
        static_cast<const torch::autograd::DifferentiableViewMeta*>(meta);
    if (view->has_bw_view()) {
      bits |= kView |
          static_cast<uint32_t>(view->get_creation_meta())
              << kCreationMetaShift;
      // The grad_fn of a view is made when it is asked for.
      non_leaf |= (bits & kRequiresGrad) != 0;
    }
  }
  return non_leaf ? bits | kNonLeaf : bits;
}

bool is_plain(const c10::TensorImpl& impl) {
  // What a shadow run that diverged has made is an ordinary tensor since then.
  return (typeid(impl) == typeid(c10::TensorImpl) ||
          capture::is_shadow_tensor(impl)) &&
      !impl.has_symbolic_sizes_strides() && !impl.is_python_dispatch() &&
      impl.layout() == c10::kStrided && impl.has_storage();
}

TensorMeta TensorMeta::read(
    const c10::TensorImpl& impl,
    std::vector<int64_t>& dims) {
  TensorMeta meta;
  meta.keys = impl.key_set().raw_repr();
  meta.storage_offset = impl.storage_offset();
  meta.bits = autograd_bits(impl);
  meta.rank = static_cast<uint32_t>(impl.dim());
  meta.dims = static_cast<uint32_t>(dims.size());
  meta.dtype = impl.dtype().toScalarType();
  meta.device = impl.device();
  dims.insert(dims.end(), impl.sizes().begin(), impl.sizes().end());
  dims.insert(dims.end(), impl.strides().begin(), impl.strides().end());
  return meta;
}

std::string meta_difference(
    const TensorMeta& then,
    const int64_t* then_dims,
    const TensorMeta& now,
    const int64_t* now_dims,
    const std::string& subject) {
  const auto changed = [&](const auto& what, const auto& was, const auto& is) {
    return c10::str(subject, what, " was ", was, ", now ", is);
  };
  const auto flag = [&](uint32_t bit, const char* what) -> std::string {
    const auto name = [&](uint32_t bits) {
      return (bits & bit) != 0 ? "true" : "false";
    };
    return (then.bits & bit) == (now.bits & bit)
        ? std::string()
        : changed(what, name(then.bits), name(now.bits));
  };

  if (then.dtype != now.dtype) {
    return changed(".dtype()", then.dtype, now.dtype);
  }
  if (then.device != now.device) {
    return changed(".device()", then.device, now.device);
  }
  if (then.rank != now.rank) {
    return changed(".dim()", then.rank, now.rank);
  }
  const int64_t* was = then_dims + then.dims;
  const int64_t* is = now_dims + now.dims;
  for (uint32_t i = 0; i < then.rank; ++i) {
    if (was[i] != is[i]) {
      return changed(c10::str(".size(", i, ")"), was[i], is[i]);
    }
  }
  for (uint32_t i = 0; i < then.rank; ++i) {
    const uint32_t j = then.rank + i;
    if (was[j] != is[j]) {
      return changed(c10::str(".stride(", i, ")"), was[j], is[j]);
    }
  }
  for (const auto& [bit, what] :
       {std::pair<uint32_t, const char*>{kRequiresGrad, ".requires_grad()"},
        {kNonLeaf, " has a grad_fn:"},
        {kView, ".is_view()"},
        {kForwardGrad, " has a forward-mode tangent:"},
        {kWrappedNumber, " is a wrapped number:"}}) {
    if (std::string text = flag(bit, what); !text.empty()) {
      return text;
    }
  }
  if (then.bits != now.bits) {
    return c10::str(subject, " is a view that was made in another grad mode");
  }
  if (then.keys != now.keys) {
    const auto keys = [](uint64_t raw) {
      return c10::DispatchKeySet(c10::DispatchKeySet::RAW, raw);
    };
    const bool was_inference =
        !keys(then.keys).has(c10::DispatchKey::ADInplaceOrView);
    const bool is_inference =
        !keys(now.keys).has(c10::DispatchKey::ADInplaceOrView);
    if (was_inference != is_inference) {
      return changed(
          ".is_inference()",
          was_inference ? "true" : "false",
          is_inference ? "true" : "false");
    }
    return changed(
        "'s dispatch keys",
        c10::toString(keys(then.keys)),
        c10::toString(keys(now.keys)));
  }
  return "";
}

Span storage_span(const c10::StorageImpl& storage) {
  // Not `data()`: it throws for a tensor without data, and would materialise a
  // copy-on-write one.
  const void* data = const_cast<c10::StorageImpl&>(storage)
                         ._mutable_data_ptr_no_checks()
                         .get();
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return data == nullptr ? Span() : Span{begin, begin + storage.nbytes()};
}

Span tensor_span(const c10::TensorImpl& impl) {
  if (storage_of(impl) == nullptr || impl.numel() == 0) {
    return {};
  }
  const Span storage = storage_span(*storage_of(impl));
  if (storage.begin == storage.end) {
    return {};
  }
  int64_t last = 0;
  for (int64_t i = 0; i < impl.dim(); ++i) {
    last += (impl.size(i) - 1) * impl.stride(i);
  }
  const auto bytes = [&](int64_t elements) {
    return static_cast<uintptr_t>(elements) * impl.itemsize();
  };
  const uintptr_t begin = storage.begin + bytes(impl.storage_offset());
  return {begin, begin + bytes(last + 1)};
}

} // namespace temper::dispatch
