// Memory for modules whose padding must not look like pointers to guards.
#include <cstdlib>
#include <new>

#include "temper/detail/module_type.h"

namespace temper::detail {

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
