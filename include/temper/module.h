// Module and its holder: what a model derives from to be compiled in place.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <temper/counters.h>
#include <temper/detail/module_call.h>
#include <temper/detail/module_state.h>
#include <temper/detail/module_type.h>
#include <temper/options.h>

namespace temper {

/// The base of a model, in the place of `torch::nn::Module` or `Cloneable`:
/// \rst
/// .. code-block:: cpp
///
///   struct NetImpl : temper::Module<NetImpl> {
///     torch::nn::Linear fc{nullptr};
///     NetImpl() { reset(); }
///     void reset() override {
///       fc = register_module("fc", torch::nn::Linear(64, 64));
///     }
///     torch::Tensor forward(torch::Tensor x) { return torch::gelu(fc(x)); }
///   };
///   TEMPER_MODULE(Net);
///
///   Net net;
///   net->compile();
///   auto y = net(x);          // compiled; net->forward(x) stays the raw one
/// \endrst
/// It is a `Cloneable`, so `Impl` has a `reset()`; the state dict is torch's.
/// Arguments and results of `forward`: tensors, numbers, strings, optionals,
/// tuples, containers, plain structs of those. `torch::nn::Sequential` and
/// `AnyModule` call `forward` itself, so inside them a module runs uncompiled.
///
/// Not at the same time as a call: `compile` and `decompile`.
template <class Impl>
class Module : public torch::nn::Cloneable<Impl> {
 public:
  /// The name is inferred from the type, as in torch.
  Module() {
    begin();
  }
  /// A module that calls itself `name`.
  explicit Module(std::string name)
      : torch::nn::Cloneable<Impl>(std::move(name)) {
    begin();
  }
  /// Copies of compiled modules, clones too, are compiled with the same options
  /// and share no compiled state.
  Module(const Module& other) : torch::nn::Cloneable<Impl>(other) {
    begin();
    temper_state_.copy(*this, other.temper_state_);
  }
  /// As the copy constructor.
  Module& operator=(const Module& other) {
    torch::nn::Cloneable<Impl>::operator=(other);
    temper_state_.copy(*this, other.temper_state_);
    return *this;
  }
  ~Module() override = default;

  /// Compiles calls from now on, in place; nothing runs yet. Again with equal
  /// options: nothing happens. With others: they hold from the next call.
  /// Throws `temper::Error` for options that cannot be.
  void compile(const CompileOptions& options = {}) {
    temper_state_.compile(*this, options);
  }

  /// True between `compile()` and `decompile()`.
  bool is_compiled() const noexcept {
    return temper_state_.site() != nullptr;
  }

  /// Forgets what was compiled; calls are plain again.
  void decompile() {
    temper_state_.decompile();
  }

  /// What was compiled, why, and what it cost, as text.
  std::string explain() const {
    return temper_state_.explain(*this);
  }

  /// `forward(args...)`, compiled if the module is.
  template <class... Args>
  requires detail::HasPublicForward<Impl, Args...>
  decltype(auto) operator()(Args&&... args) {
    return detail::call_module(
        static_cast<Impl&>(*this),
        temper_state_.armed(),
        std::forward<Args>(args)...);
  }

  /// As in torch; also makes the child's type known to guards.
  template <class Child>
  std::shared_ptr<Child> register_module(
      std::string name,
      std::shared_ptr<Child> module) {
    detail::know_module<Child>();
    return torch::nn::Module::register_module(
        std::move(name), std::move(module));
  }
  /// As above, of a holder.
  template <class Child>
  std::shared_ptr<Child> register_module(
      std::string name,
      torch::nn::ModuleHolder<Child> holder) {
    return register_module(std::move(name), holder.ptr());
  }
  /// As in torch; also makes the child's type known to guards.
  template <class Child>
  std::shared_ptr<Child> replace_module(
      const std::string& name,
      std::shared_ptr<Child> module) {
    detail::know_module<Child>();
    return torch::nn::Module::replace_module(name, std::move(module));
  }
  /// As above, of a holder.
  template <class Child>
  std::shared_ptr<Child> replace_module(
      const std::string& name,
      torch::nn::ModuleHolder<Child> holder) {
    return replace_module(name, holder.ptr());
  }

  /// For temper itself: the type at the root of this surface.
  using TemperRoot = Impl;
  /// For temper itself: how the module is compiled.
  const detail::ModuleState& temper_state() const noexcept {
    return temper_state_;
  }
  /// For temper itself: leaves its own bytes out of what is watched.
  void temper_hidden(detail::State& state) const {
    state.ignore(&temper_state_, sizeof(temper_state_));
  }

 private:
  void begin() {
    detail::know_module<Impl>();
    detail::clear_fields<Impl, Module>(
        static_cast<Impl*>(this), &temper_state_ + 1);
    static_assert(
        detail::kSurfaceIsWhole<Impl, Module>,
        "temper: a member of this module is named like one of "
        "temper::Module (compile, is_compiled, decompile, explain, operator()) "
        "and hides it. Give it another name.");
  }

  detail::ModuleState temper_state_;
};

/// A holder, as `torch::nn::ModuleHolder`, whose call is the module's compiled
/// one. Use TEMPER_MODULE.
template <class Contained>
class ModuleHolder : public torch::nn::ModuleHolder<Contained> {
 public:
  using torch::nn::ModuleHolder<Contained>::ModuleHolder;

  /// A new module.
  ModuleHolder()
      : torch::nn::ModuleHolder<Contained>(detail::make_module<Contained>()) {}
  /// As above, made with arguments.
  template <class... Args>
  requires(detail::kMakesModule<
           ModuleHolder,
           Contained,
           Args...>) explicit ModuleHolder(Args&&... args)
      : torch::nn::ModuleHolder<Contained>(
            detail::make_module<Contained>(std::forward<Args>(args)...)) {}

  /// `forward(args...)`, compiled if the module is.
  template <class... Args>
  requires detail::HasPublicForward<Contained, Args...>
  decltype(auto) operator()(Args&&... args) {
    Contained& module = **this;
    return detail::call_module(
        module, module.temper_state().armed(), std::forward<Args>(args)...);
  }

 private:
  [[no_unique_address]] detail::KnowModule<Contained> known_;
};

} // namespace temper

/// Defines the holder `Name` of `ImplType`: TORCH_MODULE_IMPL's counterpart.
#define TEMPER_MODULE_IMPL(Name, ImplType)                            \
  class Name : public ::temper::ModuleHolder<ImplType> { /* NOLINT */ \
   public:                                                            \
    using ::temper::ModuleHolder<ImplType>::ModuleHolder;             \
    using Impl [[maybe_unused]] = ImplType;                           \
  }

/// Defines the holder `Name` of `NameImpl`: TORCH_MODULE's counterpart.
#define TEMPER_MODULE(Name) TEMPER_MODULE_IMPL(Name, Name##Impl)
