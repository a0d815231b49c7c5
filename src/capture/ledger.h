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
#include <c10/util/flat_hash_map.h>

#include <vector>

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
  explicit Ledger(const Trace& trace);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// What this very tensor object (defined) is, if it has been bound and still
  /// has the geometry and storage it had; else kNoValue.
  graph::ValueId find_object(const at::Tensor& tensor) const;
  /// What `tensor` (defined) is: the object, else by storage and geometry.
  Lookup find(const at::Tensor& tensor) const;
  /// True iff `find_object(tensor) == value`, at less cost if it is.
  bool is_object(const at::Tensor& tensor, graph::ValueId value) const;
  /// The storage number of a tensor's storage, or -1.
  int32_t find_storage(const at::Tensor& tensor) const;
  /// From now on `tensor` is `value`, whose geometry it has.
  void bind(const at::Tensor& tensor, graph::ValueId value);
  /// As `bind`, at less cost, of a tensor object that has never been bound;
  /// `new_storage`: nor has its storage.
  void bind_new(
      const at::Tensor& tensor,
      graph::ValueId value,
      bool new_storage);
  /// The tensor object bound last to the value; undefined if it is dead.
  at::Tensor object(graph::ValueId value) const;
  /// The storage of the tensor bound last with this number, if it is alive;
  /// else null.
  c10::intrusive_ptr<c10::StorageImpl> storage(int32_t number) const;
  /// Values of tensor objects and, of each storage, one value of those that are
  /// alive; except inputs and what shares memory with them.
  std::vector<graph::ValueId> alive_values() const;

 private:
  struct Object {
    const at::TensorImpl* impl;
    graph::ValueId value;
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>
        reference;
  };
  struct Home {
    const c10::StorageImpl* impl;
    int32_t number;
    int32_t last_link; ///< Index into `links`, or -1.
    c10::weak_intrusive_ptr<c10::StorageImpl> reference;
  };
  /// A value that was bound in a storage, and the one before it there.
  struct Link {
    graph::ValueId value;
    int32_t previous;
  };

  bool lives_in(const at::TensorImpl& impl, int32_t number) const;
  bool is_still(const at::TensorImpl& impl, graph::ValueId value) const;
  bool has_geometry(const at::TensorImpl& impl, graph::ValueId value) const;
  /// Indices into `objects` and `homes`, or -1.
  int32_t object_at(const at::TensorImpl* impl) const;
  int32_t home_at(const c10::StorageImpl* impl) const;
  int32_t add_object(const at::Tensor& tensor, graph::ValueId value);
  int32_t add_home(const c10::Storage& storage, int32_t number);
  void set_home(int32_t home, graph::ValueId value);

  /// What grows with each tensor. A thread keeps one to use it again: new large
  /// tables for each of many short ledgers are what malloc is slow at.
  struct Tables {
    std::vector<Object> objects;
    std::vector<Home> homes;
    std::vector<Link> links;
    std::vector<int32_t> last_object; ///< By value: bound last, or -1.
    std::vector<int32_t> last_home; ///< By storage number, likewise.
  };

  const Trace* trace_;
  Tables tables_;
  /// Addresses of the first of the objects and homes. Entered when they are
  /// looked up: most tensors of a shadow run never are.
  mutable ska::flat_hash_map<const void*, int32_t> by_impl_;
  mutable ska::flat_hash_map<const void*, int32_t> by_storage_;
  mutable size_t entered_objects_ = 0; ///< So many are in `by_impl_`.
  mutable size_t entered_homes_ = 0;
};

} // namespace temper::capture
