// Looks through the bytes of user objects for what they point to: tensors and
// watched objects, which guards can follow, and memory of unknown content.
//
// Bytes say everything about an object's state except for what lies behind its
// pointers. Each aligned word is one of
//  1. a plain value: null, or it can't be the address of readable memory;
//  2. an address in code, constants or vtables, whose content never changes;
//  3. an address in a watched object, watched there (a std::string's address of
//     its own short buffer is one);
//  4. a tensor, watched by identity and metadata;
//  5. the first word of a std::vector of words of kinds 2 to 4: its elements
//     are watched as well;
//  6. anything else: opaque.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_set>
#include <vector>

#include "dispatch/watch_memory.h"

namespace temper::dispatch {

/// What a watched word may point to.
class KnownMemory {
 public:
  KnownMemory() : objects_(LoadedObjects::current()) {}

  /// An object that is watched: addresses inside it are known.
  void add_object(const void* begin, size_t size);
  /// One address: a control block, an object of which no more is known.
  void add_address(const void* address);
  void add_tensor(const c10::TensorImpl* impl);

  bool is_known(uintptr_t word) const;
  /// As `as_tensor` in watch_memory.h, without system calls for those added.
  const c10::TensorImpl* tensor(uintptr_t word, bool* undefined) const;
  const LoadedObjects& loaded() const {
    return *objects_;
  }

 private:
  std::shared_ptr<const LoadedObjects> objects_;
  std::map<uintptr_t, uintptr_t> watched_; // Begin to end, disjoint.
  std::unordered_set<uintptr_t> addresses_;
  std::unordered_set<const c10::TensorImpl*> tensors_;
};

/// What was found; addresses of the words that were looked at.
struct Scan {
  struct Tensor {
    const std::byte* slot = nullptr;
    const c10::TensorImpl* impl = nullptr; ///< Defined.
  };
  /// The elements of a std::vector, to be compared with the other bytes.
  struct Elements {
    const std::byte* slot = nullptr; ///< Of the vector itself.
    const std::byte* begin = nullptr;
    size_t size = 0;
  };
  std::vector<Tensor> tensors;
  std::vector<Elements> elements;
  const std::byte* opaque = nullptr; ///< The first opaque word.
  bool opaque_function = false; ///< It is that of a std::function's captures.
};

/// Scans [begin, begin + size) of a user's object. What looks like a pointer is
/// taken for one, so padding must be left out.
void scan_fields(
    const std::byte* begin,
    size_t size,
    const KnownMemory& known,
    Scan& scan);

/// Scans the fields of a module of LibTorch's own. What its options keep on the
/// heap is trusted not to change; the captures of a std::function are the
/// user's.
void scan_own_fields(
    const std::byte* begin,
    size_t size,
    const KnownMemory& known,
    bool holds_functions,
    Scan& scan);

} // namespace temper::dispatch
