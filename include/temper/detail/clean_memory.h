// The bytes of an object that hold no value, and how they stay out of guards.
//
// - Padding: the compiler knows where it is, so guards leave it out.
// - Unused bytes: the room of an empty optional, of a variant's larger
//   alternative. Where they are depends on the value, so they are compared; but
//   temper makes objects in zeroed memory where it makes them itself, and
//   temper::Module zeroes its own before the fields are built, so that they
//   hold no remains that look like pointers.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <temper/export.h>

// Different types of one name may be in two libraries of a process: what is
// kept for a type must not be shared between them.
#define TEMPER_OWN_OF_LIBRARY_ __attribute__((visibility("hidden")))

#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
#define TEMPER_CLEAR_PADDING_(pointer) __builtin_clear_padding(pointer)
#endif
#endif

namespace temper::detail {

#if defined(TEMPER_CLEAR_PADDING_)
constexpr bool kKnowsPadding = true;
#else
constexpr bool kKnowsPadding = false;
#define TEMPER_CLEAR_PADDING_(pointer) static_cast<void>(pointer)
#endif

/// Bytes [begin, end) from the start of an object.
struct Gap {
  size_t begin = 0;
  size_t end = 0;
};
using Gaps = std::vector<Gap>;

/// The bytes that `clear` sets to zero in memory for an object of this size.
TEMPER_API Gaps
find_gaps(size_t size, size_t alignment, void (*clear)(void* memory));

/// Never constructed: a `T` for which there is memory only.
template <class T>
struct Unbuilt {
  T object;
};

template <class T>
TEMPER_OWN_OF_LIBRARY_ void clear_padding(void* memory) {
  // g++ refuses pointers to classes that aren't trivially copyable, since there
  // may be members of a derived class in their padding, but takes the name of
  // an object. A structured binding is one.
  auto& [object] = *static_cast<Unbuilt<T>*>(memory);
  TEMPER_CLEAR_PADDING_(&object);
}

/// The padding of objects of type T, in order. Of padding bits only whole
/// bytes. Empty where the compiler does not tell.
template <class T>
TEMPER_OWN_OF_LIBRARY_ const Gaps& padding_of() {
  // Never destroyed: calls may come after main().
  static const Gaps& gaps =
      *new Gaps(find_gaps(sizeof(T), alignof(T), &clear_padding<T>));
  return gaps;
}

/// Zeroes memory. The compiler, to which this may be dead code, does not see
/// it.
TEMPER_API void clear_memory(void* begin, size_t size) noexcept;

/// Where the fields of objects of a type end, if nothing of them is built when
/// the constructor of `base` runs; else 0: there are other bases.
TEMPER_API size_t end_of_fields(
    const std::type_info& type,
    const std::type_info& base,
    size_t size,
    const Gaps& padding) noexcept;

/// Zeroes the fields of an object of which `Base`, which ends at `end`, has
/// been built so far.
template <class T, class Base>
TEMPER_OWN_OF_LIBRARY_ void clear_fields(T* object, void* end) noexcept {
  if constexpr (kKnowsPadding && !std::is_abstract_v<T>) {
    static const size_t last =
        end_of_fields(typeid(T), typeid(Base), sizeof(T), padding_of<T>());
    const auto first = static_cast<size_t>(
        static_cast<char*>(end) - reinterpret_cast<char*>(object));
    if (first < last) {
      clear_memory(end, last - first);
    }
  }
}

/// Zeroed memory; null never comes back.
TEMPER_API void* allocate_clean(size_t size);
TEMPER_API void free_clean(void* memory) noexcept;

/// Gives zeroed memory.
template <class T>
struct CleanAllocator {
  using value_type = T;
  CleanAllocator() = default;
  template <class U>
  CleanAllocator(const CleanAllocator<U>& /*other*/) noexcept {}
  T* allocate(size_t count) {
    return static_cast<T*>(allocate_clean(count * sizeof(T)));
  }
  void deallocate(T* memory, size_t /*count*/) noexcept {
    free_clean(memory);
  }
  bool operator==(const CleanAllocator& /*other*/) const = default;
};

/// `std::make_shared`, in zeroed memory.
template <class T, class... Args>
std::shared_ptr<T> make_clean(Args&&... args) {
  if constexpr (alignof(T) > alignof(std::max_align_t)) {
    return std::make_shared<T>(std::forward<Args>(args)...);
  } else {
    return std::allocate_shared<T>(
        CleanAllocator<T>(), std::forward<Args>(args)...);
  }
}

} // namespace temper::detail
