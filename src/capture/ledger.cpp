// Tensor identity. Two hash tables lead from addresses to objects and storages;
// what is bound last to a value is found without them.
#include "capture/ledger.h"

#include <algorithm>
#include <utility>

#include "base/thread_object.h"

namespace temper::capture {
namespace {

const c10::StorageImpl* storage_of(const at::TensorImpl& impl) {
  return impl.unsafe_storage().unsafeGetStorageImpl();
}

// The entry of a table that grows with what it is indexed by; -1 if it has
// none yet.
int32_t entry(const std::vector<int32_t>& table, int32_t index) {
  const auto i = static_cast<size_t>(index);
  return i < table.size() ? table[i] : -1;
}

void set_entry(std::vector<int32_t>& table, int32_t index, size_t to) {
  const auto i = static_cast<size_t>(index);
  if (i >= table.size()) {
    table.resize(i + 1, -1);
  }
  table[i] = static_cast<int32_t>(to);
}

// Of each table: what one thread keeps is some 400 kB at most.
constexpr size_t kMostKept = 4096;

} // namespace

Ledger::Ledger(const Trace& trace) : trace_(&trace) {
  if (auto* spare = base::ThreadObject<Tables>::while_alive()) {
    tables_ = std::exchange(*spare, {});
  }
}

Ledger::~Ledger() {
  tables_.objects.clear();
  tables_.homes.clear();
  tables_.links.clear();
  tables_.last_object.clear();
  tables_.last_home.clear();
  if (std::max(
          {tables_.objects.capacity(),
           tables_.homes.capacity(),
           tables_.links.capacity(),
           tables_.last_object.capacity(),
           tables_.last_home.capacity()}) > kMostKept) {
    return;
  }
  if (auto* spare = base::ThreadObject<Tables>::while_alive()) {
    *spare = std::move(tables_);
  }
}

int32_t Ledger::object_at(const at::TensorImpl* impl) const {
  for (auto& next = entered_objects_; next < tables_.objects.size(); ++next) {
    by_impl_.emplace(tables_.objects[next].impl, static_cast<int32_t>(next));
  }
  const auto it = by_impl_.find(impl);
  return it == by_impl_.end() ? -1 : it->second;
}

int32_t Ledger::home_at(const c10::StorageImpl* impl) const {
  for (auto& next = entered_homes_; next < tables_.homes.size(); ++next) {
    by_storage_.emplace(tables_.homes[next].impl, static_cast<int32_t>(next));
  }
  const auto it = by_storage_.find(impl);
  return it == by_storage_.end() ? -1 : it->second;
}

// True iff the tensor's storage has this number.
bool Ledger::lives_in(const at::TensorImpl& impl, int32_t number) const {
  const auto* storage = storage_of(impl);
  const auto last = entry(tables_.last_home, number);
  if (last >= 0) {
    const auto& home = tables_.homes[static_cast<size_t>(last)];
    if (home.impl == storage) {
      return home.number == number;
    }
  }
  const auto home = home_at(storage);
  return home >= 0 && tables_.homes[static_cast<size_t>(home)].number == number;
}

bool Ledger::has_geometry(const at::TensorImpl& impl, graph::ValueId value)
    const {
  const auto& type = trace_->graph.values[static_cast<size_t>(value)].type;
  const auto& info = trace_->values[static_cast<size_t>(value)];
  const auto sizes = impl.sizes();
  const auto strides = impl.strides();
  if (impl.storage_offset() != info.offset ||
      sizes.size() != type.sizes.size() ||
      c10::typeMetaToScalarType(impl.dtype()) != type.dtype ||
      impl.is_conj() != type.conj || impl.is_neg() != type.neg) {
    return false;
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != type.sizes[d].size || strides[d] != type.strides[d]) {
      return false;
    }
  }
  return true;
}

// True iff a tensor object that was bound to the value is what it was then.
bool Ledger::is_still(const at::TensorImpl& impl, graph::ValueId value) const {
  return impl.has_storage() &&
      lives_in(impl, trace_->values[static_cast<size_t>(value)].storage) &&
      has_geometry(impl, value);
}

graph::ValueId Ledger::find_object(const at::Tensor& tensor) const {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  const auto known = object_at(&impl);
  if (known < 0) {
    return graph::kNoValue;
  }
  const auto value = tables_.objects[static_cast<size_t>(known)].value;
  return is_still(impl, value) ? value : graph::kNoValue;
}

bool Ledger::is_object(const at::Tensor& tensor, graph::ValueId value) const {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  const auto last = entry(tables_.last_object, value);
  if (last >= 0 && tables_.objects[static_cast<size_t>(last)].impl == &impl) {
    return tables_.objects[static_cast<size_t>(last)].value == value &&
        is_still(impl, value);
  }
  return find_object(tensor) == value;
}

Ledger::Lookup Ledger::find(const at::Tensor& tensor) const {
  if (const auto value = find_object(tensor); value != graph::kNoValue) {
    return {Found::kKnown, value};
  }
  const auto& impl = *tensor.unsafeGetTensorImpl();
  const auto home = impl.has_storage() ? home_at(storage_of(impl)) : -1;
  if (home < 0) {
    return {};
  }
  // A shallow copy (a SavedVariable's, `.data()`), or an object that was given
  // another's memory: the latest value with this geometry is this memory seen
  // this way.
  for (auto at = tables_.homes[static_cast<size_t>(home)].last_link; at >= 0;) {
    const auto& link = tables_.links[static_cast<size_t>(at)];
    if (has_geometry(impl, link.value)) {
      return {Found::kKnown, link.value};
    }
    at = link.previous;
  }
  return {Found::kForeignView, graph::kNoValue};
}

int32_t Ledger::find_storage(const at::Tensor& tensor) const {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  const auto home = impl.has_storage() ? home_at(storage_of(impl)) : -1;
  return home < 0 ? -1 : tables_.homes[static_cast<size_t>(home)].number;
}

int32_t Ledger::add_object(const at::Tensor& tensor, graph::ValueId value) {
  tables_.objects.push_back(
      {tensor.unsafeGetTensorImpl(),
       value,
       c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
           tensor.getIntrusivePtr())});
  return static_cast<int32_t>(tables_.objects.size()) - 1;
}

int32_t Ledger::add_home(const c10::Storage& storage, int32_t number) {
  tables_.homes.push_back(
      {storage.unsafeGetStorageImpl(),
       number,
       -1,
       storage.getWeakStorageImpl()});
  return static_cast<int32_t>(tables_.homes.size()) - 1;
}

void Ledger::set_home(int32_t at, graph::ValueId value) {
  const auto number = trace_->values[static_cast<size_t>(value)].storage;
  set_entry(tables_.last_home, number, static_cast<size_t>(at));
  auto& home = tables_.homes[static_cast<size_t>(at)];
  if (home.number != number) {
    home.number = number;
    home.last_link = -1;
  }
  tables_.links.push_back({value, home.last_link});
  home.last_link = static_cast<int32_t>(tables_.links.size()) - 1;
}

void Ledger::bind(const at::Tensor& tensor, graph::ValueId value) {
  const auto& impl = *tensor.unsafeGetTensorImpl();
  auto object = object_at(&impl);
  if (object < 0) {
    object = add_object(tensor, value);
  }
  tables_.objects[static_cast<size_t>(object)].value = value;
  set_entry(tables_.last_object, value, static_cast<size_t>(object));

  const auto& storage = impl.unsafe_storage();
  auto home = home_at(storage.unsafeGetStorageImpl());
  if (home < 0) {
    home =
        add_home(storage, trace_->values[static_cast<size_t>(value)].storage);
  }
  set_home(home, value);
}

void Ledger::bind_new(
    const at::Tensor& tensor,
    graph::ValueId value,
    bool new_storage) {
  const auto object = add_object(tensor, value);
  set_entry(tables_.last_object, value, static_cast<size_t>(object));

  const auto& storage = tensor.unsafeGetTensorImpl()->unsafe_storage();
  const auto* impl = storage.unsafeGetStorageImpl();
  const auto number = trace_->values[static_cast<size_t>(value)].storage;
  auto home = new_storage ? -1 : entry(tables_.last_home, number);
  if (home >= 0 && tables_.homes[static_cast<size_t>(home)].impl != impl) {
    home = home_at(impl);
  }
  set_home(home < 0 ? add_home(storage, number) : home, value);
}

at::Tensor Ledger::object(graph::ValueId value) const {
  const auto at = entry(tables_.last_object, value);
  return at < 0
      ? at::Tensor()
      : at::Tensor(tables_.objects[static_cast<size_t>(at)].reference.lock());
}

c10::intrusive_ptr<c10::StorageImpl> Ledger::storage(int32_t number) const {
  const auto at = entry(tables_.last_home, number);
  return at < 0 ? c10::intrusive_ptr<c10::StorageImpl>()
                : tables_.homes[static_cast<size_t>(at)].reference.lock();
}

std::vector<graph::ValueId> Ledger::alive_values() const {
  const auto from_input = [&](int32_t storage) {
    return trace_->storages[static_cast<size_t>(storage)].input >= 0;
  };
  std::vector<graph::ValueId> result;
  for (const auto& object : tables_.objects) {
    const auto value = static_cast<size_t>(object.value);
    if (!from_input(trace_->values[value].storage) &&
        !object.reference.expired()) {
      result.push_back(object.value);
    }
  }
  // `.data()` makes an object that nobody binds.
  for (const auto& home : tables_.homes) {
    if (!from_input(home.number) && home.last_link >= 0 &&
        !home.reference.expired()) {
      result.push_back(
          tables_.links[static_cast<size_t>(home.last_link)].value);
    }
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

} // namespace temper::capture
