// Calls of a module's forward through its call site.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <type_traits>
#include <utility>

#include <temper/detail/call.h>

namespace temper::detail {

/// What a call of a module needs.
template <class Impl, class... Args>
concept HasPublicForward = requires(Impl& module, Args&&... args) {
  module.forward(std::forward<Args>(args)...);
};

/// The root of a temper::Module's surface; for other modules the type itself.
template <class Impl>
struct RootOf {
  using type = Impl;
};
template <class Impl>
requires requires {
  typename Impl::TemperRoot;
}
struct RootOf<Impl> {
  using type = typename Impl::TemperRoot;
};

/// A module's forward for calls after the call that it was kept in.
template <class Impl>
struct KeptForward {
  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    if (!owner && alive.expired()) {
      throw_code_gone();
    }
    return module->forward(std::forward<Args>(args)...);
  }

  Impl* module;
  std::shared_ptr<torch::nn::Module> owner; ///< Null: nobody shares it.
  std::weak_ptr<const void> alive;
  std::shared_ptr<const Site> site; ///< Null: it is part of the module.
};

/// A module's forward, as a target of `call`.
template <class Impl>
struct ForwardOf {
  /// One site serves calls of a class and of the class it derives from.
  static constexpr bool kGeneric =
      !std::is_same_v<Impl, typename RootOf<Impl>::type>;

  template <class... Args>
  decltype(auto) operator()(Args&&... args) {
    return module->forward(std::forward<Args>(args)...);
  }
  KeptForward<Impl> keep(const Site& site) const {
    return {
        module,
        module->weak_from_this().lock(),
        site.alive(),
        site.weak_from_this().lock()};
  }

  Impl* module;
};

/// `module.forward(args...)` through `site`, plainly without one.
template <class Impl, class... Args>
auto call_module(Impl& module, Site* site, Args&&... args)
    -> decltype(module.forward(std::forward<Args>(args)...)) {
  if (site == nullptr) {
    return module.forward(std::forward<Args>(args)...);
  }
  ForwardOf<Impl> target{&module};
  return detail::call<typename ForwardParams<Impl>::type>(
      *site, target, std::forward<Args>(args)...);
}

/// True iff no member of `Impl` hides one of `Surface`, its temper::Module.
template <class Impl, class Surface>
constexpr bool kSurfaceIsWhole = requires {
  requires std::
      is_same_v<decltype(&Impl::compile), decltype(&Surface::compile)>;
  requires std::
      is_same_v<decltype(&Impl::is_compiled), decltype(&Surface::is_compiled)>;
  requires std::
      is_same_v<decltype(&Impl::decompile), decltype(&Surface::decompile)>;
  requires std::
      is_same_v<decltype(&Impl::explain), decltype(&Surface::explain)>;
  requires !requires {
    &Impl::operator();
  };
};

} // namespace temper::detail
