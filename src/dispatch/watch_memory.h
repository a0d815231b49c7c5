// Reading memory of which nothing is known, and telling constant memory from
// memory whose content can change.
#pragma once

#include <c10/core/TensorImpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace temper::dispatch {

/// Copies `size` bytes at `address` to `to`. False if they can't all be read.
/// Never faults.
bool read_memory(uintptr_t address, size_t size, void* to);

/// False for words that can't be addresses in user space: small integers,
/// floating point numbers, most packed values. No system call.
bool may_be_pointer(uintptr_t word);
/// True iff this word is the address of readable memory.
bool points_to_memory(uintptr_t word);

/// The tensor that `word` points to; null if it points to none. Told by the
/// vtable, the reference count and the storage, so that the remains of a freed
/// tensor don't pass for one. `undefined` is set to true iff it is LibTorch's
/// undefined tensor.
const c10::TensorImpl* as_tensor(uintptr_t word, bool* undefined);

/// The constant parts of the program and its libraries.
class LoadedObjects {
 public:
  /// Of the moment; cached until a library is loaded or unloaded.
  static std::shared_ptr<const LoadedObjects> current();

  /// In code, constants or vtables: content that does not change.
  bool is_constant(uintptr_t address) const;
  /// In code.
  bool is_code(uintptr_t address) const;

 private:
  struct Segment {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    bool code = false;
  };
  const Segment* find(uintptr_t address) const;

  uint64_t version_ = 0; // Loads and unloads before.
  std::vector<Segment> segments_; // Sorted by address, disjoint.
};

} // namespace temper::dispatch
