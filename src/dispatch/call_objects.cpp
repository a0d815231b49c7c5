// Comparing tensor objects before and after a call.
#include "dispatch/call_objects.h"

#include <c10/util/StringUtil.h>

#include <set>

namespace temper::dispatch {

CallObjects::CallObjects(
    const Call& call,
    const std::vector<std::string>& names,
    const Snapshot& state)
    : arguments_(call.tensors) {
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    add(call.tensors[i], names[i]);
  }
  for (auto& [tensor, place] : state.tensors()) {
    add(tensor, std::move(place.path));
  }
}

void CallObjects::add(const at::Tensor& tensor, std::string name) {
  if (!tensor.defined()) {
    return;
  }
  const bool has_version = !tensor.is_inference() && !tensor.requires_grad();
  objects_.push_back(
      {tensor,
       std::move(name),
       capture::ObjectState::of(tensor),
       has_version ? tensor._version() : -1});
}

std::string CallObjects::change() const {
  for (const auto& object : objects_) {
    const auto now = capture::ObjectState::of(object.tensor);
    if (const char* what = object.before.change(now)) {
      return c10::str("the call ", what, " '", object.name, "'");
    }
  }
  return "";
}

std::string CallObjects::unrecorded_write(const capture::Trace& trace) const {
  std::set<const c10::StorageImpl*> written;
  for (const auto& storage : trace.storages) {
    if (storage.input >= 0 && (storage.written || storage.rebound)) {
      const auto tensor =
          trace.bindings[static_cast<size_t>(storage.input)].tensor(arguments_);
      written.insert(tensor.storage().unsafeGetStorageImpl());
    }
  }
  for (const auto& object : objects_) {
    if (object.version >= 0 && object.tensor._version() != object.version &&
        !written.contains(object.before.storage)) {
      return c10::str(
          "'",
          object.name,
          "' is written in the call, but by no operator of it");
    }
  }
  return "";
}

} // namespace temper::dispatch
