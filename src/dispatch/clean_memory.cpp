// Zeroed memory, and where objects have padding.
#include "temper/detail/clean_memory.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace temper::detail {

Gaps find_gaps(size_t size, size_t alignment, void (*clear)(void* memory)) {
  const std::align_val_t aligned{alignment};
  auto* const bytes = static_cast<unsigned char*>(operator new(size, aligned));
  constexpr unsigned char kValue = 0xff;
  std::memset(bytes, kValue, size);
  clear(bytes);
  Gaps gaps;
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != 0) {
      continue;
    }
    if (gaps.empty() || gaps.back().end != i) {
      gaps.push_back({i, i});
    }
    gaps.back().end = i + 1;
  }
  operator delete(bytes, aligned);
  return gaps;
}

void clear_memory(void* begin, size_t size) noexcept {
  std::memset(begin, 0, size);
}

size_t end_of_fields(
    const std::type_info& type,
    const std::type_info& base,
    size_t size,
    const Gaps& padding) noexcept {
  // Of a class with a single base, public, not virtual and at its start
  // (Itanium C++ ABI, 2.9.5), nothing else is built before its own fields.
  const std::type_info* at = &type;
  while (*at != base) {
    const auto* const single =
        dynamic_cast<const abi::__si_class_type_info*>(at);
    if (single == nullptr) {
      return 0;
    }
    at = single->__base_type;
  }
  // A base of a derived class may lie in the padding at the end.
  const bool padded = !padding.empty() && padding.back().end == size;
  return padded ? padding.back().begin : size;
}

void* allocate_clean(size_t size) {
  void* const memory = std::calloc(1, size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

void free_clean(void* memory) noexcept {
  std::free(memory);
}

} // namespace temper::detail
