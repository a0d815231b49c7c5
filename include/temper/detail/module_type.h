// Making module types known, so that a watch sees their objects whole.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <type_traits>
#include <typeinfo>

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

/// An empty member that makes `Impl` known wherever an object is made.
template <class Impl>
struct KnowModule {
  KnowModule() {
    know_module<Impl>();
  }
};

} // namespace temper::detail
