// Which tensor object is which value: identity by TensorImpl, else by storage
// and geometry.
//
// Weak references keep the addresses of dead tensors and storages from being
// used again while memory is freed as in eager. Identity is checked against the
// geometry seen last at every look-up, since `set_data` and friends change a
// tensor behind the dispatcher. The autograd version is never used: raw writes
// don't bump it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include "capture/trace.h"

namespace temper::capture {

class Ledger {
 public:
  enum class Found : uint8_t {
    kKnown, ///< `value` is what the tensor is.
    kUnknown, ///< Never seen, nor its storage.
    kForeignView, ///< Its storage is known, this view of it is not.
  };
  struct Lookup {
    Found found = Found::kUnknown;
    graph::ValueId value = graph::kNoValue;
  };

  /// `trace` must outlive the ledger.
  explicit Ledger(const Trace& trace) : trace_(&trace) {}

  /// What this very tensor object (defined) is, if it has been bound and still
  /// has the geometry and storage it had; else kNoValue.
  graph::ValueId find_object(const at::Tensor& tensor) const;
  /// What `tensor` (defined) is: the object, else by storage and geometry.
  Lookup find(const at::Tensor& tensor) const;
  /// The storage number of a tensor's storage, or -1.
  int32_t find_storage(const at::Tensor& tensor) const;
  /// From now on `tensor` is `value`, whose geometry it has.
  void bind(const at::Tensor& tensor, graph::ValueId value);
  /// True iff the value's tensor object, or one that shares its storage and
  /// geometry, has been bound and is still alive.
  bool alive(graph::ValueId value) const;
  /// Values of tensor objects that are alive, except inputs.
  std::vector<graph::ValueId> alive_values() const;

  void retarget(const Trace& trace) {
    trace_ = &trace;
  }

 private:
  struct TensorEntry {
    graph::ValueId value;
    c10::weak_intrusive_ptr<c10::TensorImpl> reference;
  };
  struct StorageEntry {
    int32_t storage;
    c10::weak_intrusive_ptr<c10::StorageImpl> reference;
    c10::SmallVector<graph::ValueId, 4> values;
  };
  bool has_geometry(const at::TensorImpl& impl, graph::ValueId value) const;

  const Trace* trace_;
  ska::flat_hash_map<const at::TensorImpl*, TensorEntry> tensors_;
  ska::flat_hash_map<const c10::StorageImpl*, StorageEntry> storages_;
};

} // namespace temper::capture
