// The metadata of one tensor as guards see it, and which of several tensors
// share a storage.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace temper::dispatch {

/// What autograd knows of a tensor, in bits.
enum AutogradBits : uint32_t {
  kRequiresGrad = 1,
  kNonLeaf = 2,
  kForwardGrad = 4, ///< Has had a forward-mode tangent.
  kView = 8, ///< A differentiable view,
  kCreationMetaShift = 4, ///< made in this way (4 bits).
  kWrappedNumber = 256,
};

/// `AutogradBits` of a defined tensor. Reads what an eager op would read.
uint32_t autograd_bits(const c10::TensorImpl& impl);

/// True iff the metadata of this tensor is all in `TensorMeta`: a strided
/// tensor of LibTorch's plain kind, no sparse, nested, quantized or wrapped
/// one, sizes not symbolic.
bool is_plain(const c10::TensorImpl& impl);

/// The metadata of a plain tensor by value.
struct TensorMeta {
  uint64_t keys = 0; ///< Dispatch keys: backend, conj, neg, inference, ….
  int64_t storage_offset = 0;
  uint32_t bits = 0; ///< `AutogradBits`.
  uint32_t rank = 0;
  /// Index of `rank` sizes, then `rank` strides, in a vector beside.
  uint32_t dims = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::Device device = c10::kCPU;

  /// Reads them; appends the dims.
  static TensorMeta read(
      const c10::TensorImpl& impl,
      std::vector<int64_t>& dims);
};

/// True iff `impl`, a plain tensor, has this metadata, its storage offset
/// left out. `dims` is the vector that `meta` indexes.
inline bool same_meta(
    const c10::TensorImpl& impl,
    const TensorMeta& meta,
    const int64_t* dims) {
  if (impl.key_set().raw_repr() != meta.keys ||
      impl.dtype().toScalarType() != meta.dtype ||
      impl.device() != meta.device || autograd_bits(impl) != meta.bits) {
    return false;
  }
  const c10::IntArrayRef sizes = impl.sizes();
  const c10::IntArrayRef strides = impl.strides();
  const uint32_t rank = meta.rank;
  if (sizes.size() != rank) {
    return false;
  }
  const int64_t* expected = dims + meta.dims;
  int64_t difference = 0;
  for (uint32_t i = 0; i < rank; ++i) {
    difference |= sizes[i] ^ expected[i];
    difference |= strides[i] ^ expected[rank + i];
  }
  return difference == 0;
}

/// The first difference in words, storage offset left out: "dtype was Float,
/// now Half". Empty if none.
std::string meta_difference(
    const TensorMeta& then,
    const int64_t* then_dims,
    const TensorMeta& now,
    const int64_t* now_dims,
    const std::string& subject);

/// The StorageImpl; null if the tensor has none.
inline const c10::StorageImpl* storage_of(const c10::TensorImpl& impl) {
  return impl.unsafe_storage().unsafeGetStorageImpl();
}

/// [begin, end) of a storage's memory; empty if it has none or refuses access.
struct Span {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool overlaps(const Span& other) const {
    return begin < other.end && other.begin < end;
  }
};
Span storage_span(const c10::StorageImpl& storage);
/// The memory between a plain tensor's first and last element.
Span tensor_span(const c10::TensorImpl& impl);

/// True iff other storages may lie over the same memory: it was not allocated
/// by LibTorch (`from_blob`).
inline bool is_foreign(const c10::StorageImpl& storage) {
  return storage.allocator() == nullptr;
}

/// Finds the first of several things at an address (of their storage, say).
/// Does not allocate for up to 60 of them.
class AddressTable {
 public:
  explicit AddressTable(size_t expected)
      : mask_(std::bit_ceil(2 * expected + 2) - 1) {
    if (mask_ < kFew) {
      slots_ = few_;
      std::fill_n(slots_, mask_ + 1, Slot{nullptr, -1});
    } else {
      many_.resize(mask_ + 1, Slot{nullptr, -1});
      slots_ = many_.data();
    }
  }
  AddressTable(const AddressTable&) = delete;
  AddressTable& operator=(const AddressTable&) = delete;

  /// The index that was first inserted with this address, which is `index`
  /// itself if it is new.
  int32_t insert(const void* address, int32_t index) {
    for (size_t i = hash(address);; ++i) {
      Slot& slot = slots_[i & mask_];
      if (slot.address == nullptr) {
        slot = {address, index};
      }
      if (slot.address == address) {
        return slot.index;
      }
    }
  }
  /// -1 if there is none.
  int32_t find(const void* address) const {
    for (size_t i = hash(address);; ++i) {
      const Slot& slot = slots_[i & mask_];
      if (slot.address == address || slot.address == nullptr) {
        return slot.index;
      }
    }
  }

 private:
  struct Slot {
    const void* address; // Null: free, and the index is -1.
    int32_t index;
  };
  static constexpr size_t kFew = 128;

  static size_t hash(const void* address) {
    return (reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15) >> 40;
  }

  size_t mask_; // The number of slots, a power of two, less one.
  Slot* slots_; // At most half full.
  Slot few_[kFew];
  std::vector<Slot> many_;
};

} // namespace temper::dispatch
