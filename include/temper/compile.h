// compile(): lambdas, functions, and modules that are not temper's own.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <temper/counters.h>
#include <temper/detail/compiled.h>
#include <temper/options.h>

namespace temper {

/// What all that `compile` returns has in common. Copies share everything.
class Compiled {
 public:
  /// The counters of its calls.
  Counters counters() const {
    return site_->counters();
  }
  /// What was compiled, why, and what it cost, as text.
  std::string explain() const {
    return site_->explain();
  }
  /// Other options: they hold from the next call.
  void set_options(const CompileOptions& options) {
    site_->set_options(options);
  }

 protected:
  /// Shares a call site.
  explicit Compiled(std::shared_ptr<detail::Site> site)
      : site_(std::move(site)) {}

  /// Never null.
  std::shared_ptr<detail::Site> site_;
};

/// A compiled lambda or function: called as the original is.
template <class F>
class CompiledFunction : public Compiled {
 public:
  /// Use `compile`.
  explicit CompiledFunction(std::shared_ptr<detail::FunctionBox<F>> box)
      : Compiled(std::shared_ptr<detail::Site>(box, &box->site)),
        box_(std::move(box)) {}

  /// The compiled call. Arguments and results as of `Module`.
  template <class... Args>
  auto operator()(Args&&... args) const -> std::invoke_result_t<F&, Args...> {
    return box_->call(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<detail::FunctionBox<F>> box_;
};

/// A compiled module that is not a `temper::Module`. `Pointer` is its holder or
/// shared pointer. The module itself is as before: what else calls it, calls it
/// uncompiled.
template <class Pointer>
class CompiledModule : public Compiled {
 public:
  /// Use `compile`.
  CompiledModule(std::shared_ptr<detail::Site> site, Pointer module)
      : Compiled(std::move(site)), module_(std::move(module)) {}

  /// The compiled call of `forward`. Arguments and results as of `Module`.
  template <class... Args>
  requires detail::HasPublicForward<detail::Pointee<Pointer>, Args...>
  decltype(auto) operator()(Args&&... args) const {
    return detail::call_module(
        *module_,
        site_->enabled() ? site_.get() : nullptr,
        std::forward<Args>(args)...);
  }

  /// The original.
  detail::Pointee<Pointer>* operator->() const {
    return &*module_;
  }
  /// The original.
  detail::Pointee<Pointer>& operator*() const {
    return *module_;
  }
  /// The original's holder or shared pointer.
  const Pointer& original() const {
    return module_;
  }

 private:
  mutable Pointer module_;
};

/// A compiled TorchScript module.
class CompiledScript : public Compiled {
 public:
  /// Use `compile`.
  CompiledScript(
      std::shared_ptr<detail::Site> site,
      std::shared_ptr<torch::jit::Module> module)
      : Compiled(std::move(site)), module_(std::move(module)) {}

  /// The compiled call of `forward`, as `torch::jit::Module::operator()`.
  TEMPER_API c10::IValue operator()(std::vector<c10::IValue> inputs) const;

  /// The original.
  torch::jit::Module* operator->() const {
    return module_.get();
  }
  /// The original.
  torch::jit::Module& operator*() const {
    return *module_;
  }

 private:
  std::shared_ptr<torch::jit::Module> module_;
};

/// Compiles what can be called:
/// - a lambda (taken by value), a function, a `std::function`: returns a
///   `CompiledFunction`;
/// - a holder made with TORCH_MODULE (`torch::nn::Sequential` too) or a
///   `std::shared_ptr` to a module: a `CompiledModule`, which shares it;
/// - a `torch::jit::Module`: a `CompiledScript`, which shares it.
/// A `temper::Module` is compiled in place by its own `compile()`.
///
/// `state` are the variables that a function uses besides its arguments:
/// modules and their holders, tensors, numbers, containers. They are watched,
/// by reference if the function captured them by reference (or through `this`,
/// or if they are global): they may change and be assigned to between calls.
/// \rst
/// .. code-block:: cpp
///
///   auto step = temper::compile(
///       [&](torch::Tensor x) { return net(x) * scale; }, net, scale);
/// \endrst
/// Throws `temper::Error` for options that cannot be.
template <class F, class... State>
auto compile(F&& f, const CompileOptions& options, State&&... state) {
  return detail::Compile<std::decay_t<F>>::with(
      std::forward<F>(f),
      options,
      detail::watch_all(std::forward<State>(state)...));
}
/// As above, with default options.
template <class F, class... State>
requires(!detail::kStartsWith<CompileOptions, State...>) auto compile(
    F&& f,
    State&&... state) {
  return temper::compile(
      std::forward<F>(f), CompileOptions(), std::forward<State>(state)...);
}

} // namespace temper
