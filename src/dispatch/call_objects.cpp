// Comparing tensor objects before and after a call.
#include "dispatch/call_objects.h"

#include <c10/util/StringUtil.h>

#include <map>

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
  // By how much operators may have counted up the version of each input's
  // memory.
  std::map<const c10::StorageImpl*, int64_t> recorded;
  const auto count = [&](graph::ValueId value, const capture::OpRecord& op) {
    const auto& storage = trace.storages[static_cast<size_t>(
        trace.values[static_cast<size_t>(value)].storage)];
    if (storage.input >= 0) {
      const auto tensor =
          trace.bindings[static_cast<size_t>(storage.input)].tensor(arguments_);
      recorded[tensor.storage().unsafeGetStorageImpl()] += 1 + op.extra_steps;
    }
  };
  for (size_t i = 0; i < trace.graph.ops.size(); ++i) {
    const auto& op = trace.graph.ops[i];
    for (const auto& write : op.writes) {
      const auto& operand = op.operands[static_cast<size_t>(write.operand)];
      count(
          write.element < 0
              ? operand.value
              : operand.values[static_cast<size_t>(write.element)],
          trace.ops[i]);
    }
    if (trace.ops[i].rebinds) {
      count(op.results[0], trace.ops[i]);
    }
  }
  for (const auto& object : objects_) {
    if (object.version < 0) {
      continue;
    }
    const auto steps = object.tensor._version() - object.version;
    if (steps > recorded[object.before.storage]) {
      return c10::str(
          "'",
          object.name,
          "' is written in the call, but by no operator of it");
    }
  }
  return "";
}

} // namespace temper::dispatch
