// Tensor identity.
#include "capture/ledger.h"

#include <algorithm>

namespace temper::capture {
namespace {

c10::StorageImpl* storage_of(const at::TensorImpl& impl) {
  return impl.unsafe_storage().unsafeGetStorageImpl();
}

} // namespace

bool Ledger::has_geometry(const at::TensorImpl& impl, graph::ValueId value)
    const {
  const auto& type = trace_->graph.values[static_cast<size_t>(value)].type;
  const auto& info = trace_->values[static_cast<size_t>(value)];
  if (impl.storage_offset() != info.offset ||
      impl.dim() != static_cast<int64_t>(type.sizes.size()) ||
      c10::typeMetaToScalarType(impl.dtype()) != type.dtype ||
      impl.is_conj() != type.conj || impl.is_neg() != type.neg) {
    return false;
  }
  const auto sizes = impl.sizes();
  const auto strides = impl.strides();
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (sizes[d] != type.sizes[d].size || strides[d] != type.strides[d]) {
      return false;
    }
  }
  return true;
}

graph::ValueId Ledger::find_object(const at::Tensor& tensor) const {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  const auto known = tensors_.find(&impl);
  if (known == tensors_.end() || !impl.has_storage()) {
    return graph::kNoValue;
  }
  const auto home = storages_.find(storage_of(impl));
  const auto value = known->second.value;
  if (home == storages_.end() ||
      trace_->values[static_cast<size_t>(value)].storage !=
          home->second.storage ||
      !has_geometry(impl, value)) {
    return graph::kNoValue;
  }
  return value;
}

Ledger::Lookup Ledger::find(const at::Tensor& tensor) const {
  if (const auto value = find_object(tensor); value != graph::kNoValue) {
    return {Found::kKnown, value};
  }
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.has_storage()) {
    return {};
  }
  const auto home = storages_.find(storage_of(impl));
  if (home == storages_.end()) {
    return {};
  }
  // A shallow copy (a SavedVariable's, `.data()`), or an object that was given
  // another's memory: the latest value with this geometry is this memory seen
  // this way.
  const auto& values = home->second.values;
  for (auto it = values.rbegin(); it != values.rend(); ++it) {
    if (has_geometry(impl, *it)) {
      return {Found::kKnown, *it};
    }
  }
  return {Found::kForeignView, graph::kNoValue};
}

int32_t Ledger::find_storage(const at::Tensor& tensor) const {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  if (!impl.has_storage()) {
    return -1;
  }
  const auto home = storages_.find(storage_of(impl));
  return home == storages_.end() ? -1 : home->second.storage;
}

void Ledger::bind(const at::Tensor& tensor, graph::ValueId value) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  tensors_.insert_or_assign(
      &impl,
      TensorEntry{
          value,
          c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr())});
  const auto storage = trace_->values[static_cast<size_t>(value)].storage;
  const auto* address = storage_of(impl);
  auto it = storages_.find(address);
  if (it == storages_.end()) {
    it = storages_
             .emplace(
                 address,
                 StorageEntry{
                     storage, impl.unsafe_storage().getWeakStorageImpl(), {}})
             .first;
  } else if (it->second.storage != storage) {
    it->second.storage = storage;
    it->second.values.clear();
  }
  it->second.values.push_back(value);
}

bool Ledger::alive(graph::ValueId value) const {
  return std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& entry) {
    return entry.second.value == value && !entry.second.reference.expired();
  });
}

std::vector<graph::ValueId> Ledger::alive_values() const {
  std::vector<graph::ValueId> result;
  for (const auto& [impl, entry] : tensors_) {
    const auto storage =
        trace_->values[static_cast<size_t>(entry.value)].storage;
    const bool from_input =
        trace_->storages[static_cast<size_t>(storage)].input >= 0;
    if (!from_input && !entry.reference.expired()) {
      result.push_back(entry.value);
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

} // namespace temper::capture
