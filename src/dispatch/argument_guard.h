// Guards on the tensor arguments of a call: metadata, and how they alias.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "dispatch/watch.h"

namespace temper::dispatch {

/// The metadata of a call's tensor arguments: defined, dtype, device, layout,
/// sizes, strides, requires_grad, is_leaf, inference, conj/neg, wrapped number,
/// the dispatch keys; whether an argument is an autograd view; and aliasing:
/// which arguments are the same tensor, and which share a storage with another
/// argument or with a watched tensor (with offsets, so that overlap is known).
class ArgumentGuard {
 public:
  ArgumentGuard(const std::vector<at::Tensor>& tensors, const Snapshot& state);
  /// Hot path: no allocation.
  bool matches(const std::vector<at::Tensor>& tensors, const Snapshot& state)
      const;
  /// The first difference: "x.size(1) was 64, now 68".
  std::string difference(
      const std::vector<at::Tensor>& tensors,
      const Snapshot& state,
      const std::vector<std::string>* names) const;
  /// Equal metadata gives equal hashes.
  uint64_t hash() const;
  /// True iff two different tensor objects among arguments and watched tensors
  /// share memory.
  bool aliased() const;

 private:
  struct Entry;
  std::vector<Entry> entries_;
  uint64_t hash_ = 0;
  bool aliased_ = false;
};

} // namespace temper::dispatch
