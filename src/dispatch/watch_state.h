// The one implementation of `Snapshot`: flat arrays that compare fast.
#pragma once

#include <c10/core/UndefinedTensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "dispatch/watch.h"
#include "dispatch/watch_tensor.h"

namespace temper::dispatch {

class State final : public Snapshot {
 public:
  /// What a range of bytes holds: for messages.
  enum class Kind : uint8_t {
    kType, ///< A module's vtable pointer.
    kTraining, ///< A module's training flag.
    kParameters, ///< Begin and end of a module's dictionary.
    kBuffers,
    kChildren,
    kTensorSlot, ///< A tensor of a dictionary.
    kChildSlot, ///< A child of a dictionary.
    kFields, ///< A module's fields, a closure's captures.
    kElements, ///< The elements of a vector field.
  };

  /// The dynamic type behind `snapshot`.
  static const State& of(const Snapshot& snapshot) {
    return static_cast<const State&>(snapshot);
  }

  // Building, in an order in which each thing is reachable through what comes
  // before it, so that comparing stops before it follows a stale pointer.

  /// Saves these bytes. `object` is what offsets in messages count from.
  void add_bytes(
      Kind kind,
      const std::string& owner,
      const void* object,
      const void* begin,
      size_t size);
  /// A tensor, unless it was added before. False if guards can't describe it.
  bool add_tensor(const c10::TensorImpl* impl, const Place& place);
  /// A declared field with its content; its tensors must be added as well.
  void add_content(const std::string& name, const ReadField& read);
  /// The first reason is kept.
  void set_unguardable(std::string reason);
  /// To be called last.
  void seal();

  // Comparing with the present.

  bool matches() const;
  std::string difference() const;
  /// See `Watch::unchanged`. What may lie behind something that has changed is
  /// left out as well, so that comparing reads no memory that may be gone.
  std::shared_ptr<const State> unchanged() const;

  // The watched tensors, by index in the order of `tensors()`.

  size_t num_tensors() const {
    return tensors_.size();
  }
  /// Valid after `matches()`; may be what is left of a tensor before.
  const c10::TensorImpl& tensor(size_t i) const {
    return *tensors_[i].impl;
  }
  const Place& place(size_t i) const {
    return places_[i];
  }
  /// -1 if it is not watched.
  int32_t index_of(const c10::TensorImpl* impl) const {
    return by_impl_->find(impl);
  }
  /// The first tensor in this storage when the state was taken; -1: none.
  int32_t first_in_storage(const c10::StorageImpl* storage) const {
    return by_storage_->find(storage);
  }
  /// True iff a tensor lives in another storage than then.
  bool has_moved() const;
  /// True iff memory of a tensor was not allocated by LibTorch.
  bool has_foreign() const {
    return has_foreign_;
  }

  const std::string& unguardable() const override {
    return unguardable_;
  }
  std::optional<Place> find(const at::Tensor& tensor) const override;
  std::optional<std::pair<at::Tensor, Place>> find_memory(
      const at::Tensor& tensor) const override;
  bool is_gone() const override;
  std::vector<std::pair<at::Tensor, Place>> tensors() const override;

 private:
  struct Range {
    const std::byte* begin = nullptr;
    uint32_t size = 0;
    uint32_t saved = 0; // Index into bytes_.
  };
  struct RangeInfo { // Beside, so that ranges_ stays dense.
    Kind kind = Kind::kFields;
    uint32_t owner = 0; // Index into owners_.
    const std::byte* object = nullptr;
  };
  struct Tensor {
    const c10::TensorImpl* impl = nullptr;
    const c10::StorageImpl* storage = nullptr;
    TensorMeta meta;
  };
  struct Content {
    size_t after = 0; // How many ranges come before it.
    std::string name;
    ReadField read;
    std::string bytes;
    std::vector<const c10::TensorImpl*> tensors; // Null where undefined.
    bool holds_modules = false; // It keeps alive what comes after it.
  };

  bool same_ranges(size_t first, size_t last) const;
  bool same_content(const Content& content) const;
  bool add_unchanged(const State& from, size_t range);
  bool same_sharing() const;
  std::string range_difference(size_t i) const;
  std::string content_difference(const Content& content) const;
  std::string tensor_difference(size_t i) const;

  std::vector<Range> ranges_;
  std::vector<RangeInfo> infos_;
  std::vector<std::string> owners_;
  std::vector<std::byte> bytes_;
  std::vector<Content> contents_;

  std::vector<Tensor> tensors_;
  std::unordered_set<const c10::TensorImpl*> added_; // Until `seal`.
  std::vector<int64_t> dims_;
  std::vector<Place> places_;
  // For each tensor the first one that shares its storage.
  std::vector<int32_t> sharing_;
  std::optional<AddressTable> by_impl_; // Set from `seal` on.
  std::optional<AddressTable> by_storage_;
  bool has_foreign_ = false;
  // Keep addresses unique without keeping memory: an address that is seen again
  // belongs to the same object.
  std::vector<
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>
      weak_tensors_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> weak_storages_;

  std::string unguardable_;
};

} // namespace temper::dispatch
