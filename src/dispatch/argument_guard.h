// Guards on the tensor arguments of a call: metadata, and how they alias.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "dispatch/watch.h"
#include "dispatch/watch_tensor.h"

namespace temper::dispatch {

/// The metadata of a call's tensor arguments: defined, dtype, device, layout,
/// sizes, strides, requires_grad, is_leaf, inference, conj/neg, wrapped number,
/// the dispatch keys; whether an argument is an autograd view; and aliasing:
/// which arguments are the same tensor, and which share a storage with another
/// argument or with a watched tensor (with offsets, so that overlap is known).
/// The offset in a storage that nothing shares is not part of it: the batches
/// of a loop are slices of one tensor.
///
/// `state` is a snapshot that matches the present. Sparse, nested, quantized
/// and wrapped arguments match each other, whatever else they are: see `plain`.
class ArgumentGuard {
 public:
  ArgumentGuard(const std::vector<at::Tensor>& tensors, const Snapshot& state);
  /// Hot path: no allocation.
  bool matches(const std::vector<at::Tensor>& tensors, const Snapshot& state)
      const;
  /// The first difference: "argument 0.size(1) was 64, now 68". Empty if none.
  std::string difference(
      const std::vector<at::Tensor>& tensors,
      const Snapshot& state) const;
  /// False iff an argument is a sparse, nested, quantized or wrapped tensor, of
  /// which nothing is known. Such calls run eagerly.
  bool plain() const;
  /// True iff two different tensor objects among arguments and watched tensors
  /// share memory: the ranges between first and last element overlap.
  bool aliased() const;

 private:
  // How an argument relates to those before it and to watched tensors, by
  // their indices; -1: not.
  struct Relation {
    int32_t same_argument = -1; // The same tensor.
    int32_t same_watched = -1;
    int32_t shares_argument = -1; // The first in the same storage.
    int32_t shares_watched = -1;
    // Bytes from the start of the one it shares with, the argument if any.
    int64_t distance = 0;

    bool operator==(const Relation&) const = default;
  };
  // Two storages over the same memory.
  struct Overlap {
    int32_t argument = -1;
    int32_t other = -1;
    bool watched = false; // Is `other` a watched tensor?
    int64_t distance = 0; // In bytes.

    bool operator==(const Overlap&) const = default;
  };
  struct Entry {
    bool defined = false;
    bool plain = false; // Of a kind that is compared.
    TensorMeta meta;
    Relation relation;
  };
  class Relations;
  template <typename Visit>
  static bool for_each_overlap(
      const std::vector<at::Tensor>& tensors,
      const Snapshot& state,
      Visit visit);

  std::vector<Entry> entries_;
  std::vector<int64_t> dims_; // Of all entries.
  std::vector<Overlap> overlaps_;
  bool aliased_ = false;
};

} // namespace temper::dispatch
