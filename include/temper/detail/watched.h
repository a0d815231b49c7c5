// The variables that a compiled function is said to use.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <temper/detail/field.h>
#include <temper/detail/module_type.h>

namespace temper::detail {

/// A script module by its attributes, of submodules too.
template <>
struct Codec<torch::jit::Module> {
  static constexpr bool kFlattens = true;
  static constexpr bool kRefills = false;
  TEMPER_API static void flatten(const torch::jit::Module& value, Sink& sink);
};

/// The object of user code whose own state is part of what is watched.
struct Closure {
  const void* begin = nullptr;
  size_t size = 0; ///< 0: it has no state, so it can use globals only.

  /// True iff a variable at `address` is alive whenever the closure is called:
  /// the closure points to it, or to an object just before it (`this` of the
  /// object that it is a member of), or both are global. Of a variable that
  /// was captured by value, the original may be gone. `is_local`: it was on the
  /// stack of who called compile().
  TEMPER_API bool reaches(const void* address, bool is_local) const;
};

/// True iff `address` is on this thread's stack.
TEMPER_API bool is_on_stack(const void* address);

/// Tells what is known of one variable.
using Watched = std::function<void(const Closure&, State&)>;

/// The module behind `pointer`, and `variable`, which holds it or is it.
template <class Pointer>
Watched watch_module(Pointer pointer, const void* variable) {
  return [=](const Closure&, State& state) {
    if (pointer) {
      state.module(*pointer);
      state.known(&*pointer);
    }
    state.known(variable);
  };
}

/// The module that `variable` holds at a call, where the code reaches the
/// variable: another one may be put there. Else the one that it holds now,
/// which is `pointer`.
template <class T, class Pointer>
Watched watch_holder(const T& variable, Pointer pointer, std::string name) {
  return [where = &variable,
          is_local = is_on_stack(&variable),
          pointer = std::move(pointer),
          name = std::move(name)](
             const Closure& closure, State& state) mutable {
    if (closure.reaches(where, is_local)) {
      describe_field(*where, name, state);
      pointer = nullptr; // Not to keep a module that the variable has let go.
    } else {
      watch_module(pointer, where)(closure, state);
    }
  };
}

/// One of the variables after `f` in `compile(f, a, b)`.
template <class T>
Watched watch(T&& variable, std::string name) {
  using Plain = std::remove_cvref_t<T>;
  constexpr bool is_lvalue = std::is_lvalue_reference_v<T>;
  if constexpr (std::is_base_of_v<torch::nn::Module, Plain>) {
    static_assert(
        is_lvalue, "temper: a module must outlive the function that uses it");
    know_module<Plain>();
    return watch_module(const_cast<Plain*>(&variable), &variable);
  } else if constexpr (requires { typename Plain::ContainedType; }) {
    know_module<typename Plain::ContainedType>();
    auto pointer = variable.is_empty() ? nullptr : variable.ptr();
    if constexpr (is_lvalue) {
      return watch_holder(variable, std::move(pointer), std::move(name));
    } else {
      return watch_module(std::move(pointer), &variable);
    }
  } else if constexpr (requires {
                         requires std::is_base_of_v<
                             torch::nn::Module,
                             typename Plain::element_type>;
                         requires std::is_same_v<
                             Plain,
                             std::shared_ptr<typename Plain::element_type>>;
                       }) {
    know_module<typename Plain::element_type>();
    if constexpr (is_lvalue) {
      return watch_holder(variable, variable, std::move(name));
    } else {
      return watch_module(variable, &variable);
    }
  } else {
    static_assert(
        is_lvalue,
        "temper: only variables can be watched: this is a temporary");
    static_cast<void>(CheckField<Plain>{});
    return [where = &variable,
            is_local = is_on_stack(&variable),
            name = std::move(name)](const Closure& closure, State& state) {
      state.known(where);
      if (closure.reaches(where, is_local)) {
        describe_field(*where, name, state);
      }
    };
  }
}

/// All of them, by place: they have no names here.
template <class... T>
std::vector<Watched> watch_all(T&&... variables) {
  std::vector<Watched> all;
  (all.push_back(watch(
       std::forward<T>(variables), "watched " + std::to_string(all.size()))),
   ...);
  return all;
}

} // namespace temper::detail
