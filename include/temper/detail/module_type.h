// Making module types known, so that a watch sees their objects whole.
#pragma once

#include <torch/nn/module.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <temper/detail/field.h>
#include <temper/detail/site.h>

namespace temper::detail {

/// Makes `Impl` known, once. Said wherever temper meets a module's static type.
template <class Impl>
void know_module() {
  if constexpr (!std::is_abstract_v<Impl>) {
    static const bool once = [] {
      ModuleType known;
      known.size = sizeof(Impl);
      known.fields = [](const torch::nn::Module& module, State& state) {
        if (const auto* const self = dynamic_cast<const Impl*>(&module)) {
          describe_fields(*self, state);
        }
      };
      know_module_type(typeid(Impl), known);
      return true;
    }();
    static_cast<void>(once);
  }
}

/// As above, for the child that is being registered.
template <class Impl>
void know_child(const std::shared_ptr<Impl>& child) {
  know_module<Impl>();
  if (child) {
    meet_module(*child);
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
template <class Impl, class... Args>
std::shared_ptr<Impl> make_clean(Args&&... args) {
  if constexpr (alignof(Impl) > alignof(std::max_align_t)) {
    return std::make_shared<Impl>(std::forward<Args>(args)...);
  } else {
    return std::allocate_shared<Impl>(
        CleanAllocator<Impl>(), std::forward<Args>(args)...);
  }
}

/// True iff `Holder(args...)` makes a new module of them: not of a holder, a
/// null or a pointer to an existing one.
template <class Holder, class Contained, class... Args>
constexpr bool kMakesModule =
    sizeof...(Args) > 1 && std::is_constructible_v<Contained, Args...>;
template <class Holder, class Contained, class Arg>
constexpr bool kMakesModule<Holder, Contained, Arg> =
    std::is_constructible_v<Contained, Arg> &&
    !std::is_base_of_v<Holder, std::decay_t<Arg>> &&
    !std::is_same_v<std::decay_t<Arg>, std::nullptr_t> &&
    !std::is_same_v<std::decay_t<Arg>, std::shared_ptr<Contained>>;

/// An empty member that makes `Impl` known wherever an object is made.
template <class Impl>
struct KnowModule {
  KnowModule() {
    know_module<Impl>();
  }
};

} // namespace temper::detail
