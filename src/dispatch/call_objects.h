// The tensor objects that a call can reach, as they were before it: what it
// does to them that no operator shows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/object_state.h"
#include "capture/trace.h"
#include "dispatch/call.h"
#include "dispatch/watch.h"

namespace temper::dispatch {

class CallObjects {
 public:
  /// Of the call's tensors, by `names`, and of those of the watched `state`.
  CallObjects(
      const Call& call,
      const std::vector<std::string>& names,
      const Snapshot& state);

  /// What was done to one since ("the call adds a hook to 'weight'"), or empty.
  std::string change() const;
  /// A tensor that was written since, but by no operator of `trace`; or empty.
  /// Not of those that require grad: other threads may train them.
  std::string unrecorded_write(const capture::Trace& trace) const;

 private:
  struct Object {
    at::Tensor tensor;
    std::string name;
    capture::ObjectState before;
    int64_t version; ///< -1: not compared.
  };

  void add(const at::Tensor& tensor, std::string name);

  const std::vector<at::Tensor>& arguments_;
  std::vector<Object> objects_;
};

} // namespace temper::dispatch
