// What compile() makes of each kind of callable.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <temper/detail/call.h>
#include <temper/detail/module_call.h>
#include <temper/detail/watched.h>

namespace temper {
template <class F>
class CompiledFunction;
template <class Pointer>
class CompiledModule;
class CompiledScript;
} // namespace temper

namespace temper::detail {

/// The module behind a holder or shared pointer.
template <class Pointer>
using Pointee = std::remove_reference_t<decltype(*std::declval<Pointer&>())>;

template <class T, class... Types>
constexpr bool kStartsWith = false;
template <class T, class First, class... Rest>
constexpr bool kStartsWith<T, First, Rest...> =
    std::is_same_v<std::remove_cvref_t<First>, T>;

/// True iff nothing is lost when a callable outlives its scope.
template <class F>
constexpr bool kStateless = std::is_empty_v<F> || std::is_pointer_v<F>;

template <class F>
struct FunctionBox;

/// A function for calls after the call that it was kept in: a copy, if it can
/// be copied. What its captures refer to is there as long as the compiled
/// function is.
template <class F>
struct KeptFunction {
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    if (!kStateless<F> && alive.expired()) {
      throw_code_gone();
    }
    if constexpr (std::is_copy_constructible_v<F>) {
      return f(std::forward<Args>(args)...);
    } else {
      return f->f(std::forward<Args>(args)...);
    }
  }

  std::conditional_t<std::is_copy_constructible_v<F>, F, FunctionBox<F>*> f;
  std::weak_ptr<const void> alive;
  std::shared_ptr<const void> site; ///< Kept where that does no harm.
};

/// A function, as a target of `call`.
template <class F>
struct FunctionTarget {
  static constexpr bool kGeneric = false;

  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return box->f(std::forward<Args>(args)...);
  }
  KeptFunction<F> keep(const Site& site) const {
    if constexpr (kStateless<F>) {
      return {box->f, site.alive(), box->shared_from_this()};
    } else if constexpr (std::is_copy_constructible_v<F>) {
      return {box->f, site.alive(), nullptr};
    } else {
      return {box, site.alive(), nullptr};
    }
  }

  FunctionBox<F>* box;
};

/// A function and its call site.
template <class F>
struct FunctionBox : std::enable_shared_from_this<FunctionBox<F>> {
  FunctionBox(
      F function,
      const CompileOptions& options,
      std::vector<Watched> watched)
      : f(std::move(function)),
        site(
            name_of_type(typeid(F)),
            options,
            [this, watched = std::move(watched)](State& state) {
              describe(watched, state);
            }) {}

  template <class... Args>
  auto call(Args&&... args) -> std::invoke_result_t<F&, Args...> {
    if (!site.enabled()) {
      return f(std::forward<Args>(args)...);
    }
    FunctionTarget<F> target{this};
    return detail::call<typename CallableParams<F>::type>(
        site, target, std::forward<Args>(args)...);
  }

  void describe(const std::vector<Watched>& watched, State& state) const {
    Closure closure;
    if constexpr (!kStateless<F>) {
      closure = {&f, sizeof(F)};
      state.bytes(&f, sizeof(F), "the function's captures");
      for (const Gap& gap : padding_of<F>()) {
        state.ignore(
            reinterpret_cast<const char*>(&f) + gap.begin, gap.end - gap.begin);
      }
      describe_fields(f, state);
    }
    for (const auto& watch : watched) {
      watch(closure, state);
    }
  }

  F f;
  Site site;
};

/// The call site of a module that has none inside.
template <class Pointer>
std::shared_ptr<Site> site_of_module(
    Pointer module,
    const CompileOptions& options,
    std::vector<Watched> watched) {
  know_module<Pointee<Pointer>>();
  // The site may go at any time before the module does, never after: the
  // callable holds both.
  auto* const raw = &*module;
  return std::make_shared<Site>(
      name_of_type(typeid(Pointee<Pointer>)),
      options,
      [raw, watched = std::move(watched)](State& state) {
        state.module(*raw);
        for (const auto& watch : watched) {
          watch(Closure(), state);
        }
      });
}

/// A lambda, a function object, a function pointer.
template <class F>
struct Compile {
  static_assert(
      !std::is_base_of_v<torch::nn::Module, F>,
      "temper: pass the module's holder or std::shared_ptr; this would compile "
      "a copy of the module");
  static_assert(
      std::is_class_v<F> || kStateless<F>,
      "temper: compile() takes a lambda, a function, the holder or "
      "std::shared_ptr of a module, or a torch::jit::Module");
  template <class G>
  static CompiledFunction<F> with(
      G&& f,
      const CompileOptions& options,
      std::vector<Watched> watched) {
    return CompiledFunction<F>(make_clean<FunctionBox<F>>(
        F(std::forward<G>(f)), options, std::move(watched)));
  }
};

template <class Pointer>
concept ModulePointer =
    std::is_base_of_v<torch::nn::Module, std::remove_cv_t<Pointee<Pointer>>>;

/// A holder or shared pointer.
template <ModulePointer Pointer>
struct Compile<Pointer> {
  static_assert(
      !std::is_pointer_v<Pointer>,
      "temper: pass the module's holder or std::shared_ptr, not a plain "
      "pointer");
  static CompiledModule<Pointer> with(
      Pointer module,
      const CompileOptions& options,
      std::vector<Watched> watched) {
    auto site = site_of_module(module, options, std::move(watched));
    return CompiledModule<Pointer>(std::move(site), std::move(module));
  }
};

template <>
struct Compile<torch::jit::Module> {
  TEMPER_API static CompiledScript with(
      const torch::jit::Module& module,
      const CompileOptions& options,
      std::vector<Watched> watched);
};

} // namespace temper::detail
