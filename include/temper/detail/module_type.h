// Making module types known, so that a watch sees their objects whole.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <temper/detail/clean_memory.h>
#include <temper/detail/field.h>
#include <temper/detail/site.h>

namespace temper::detail {

/// Makes `Impl` known, once. Said wherever temper meets a module's static type.
template <class Impl>
TEMPER_OWN_OF_LIBRARY_ void know_module() {
  if constexpr (!std::is_abstract_v<Impl>) {
    static const bool once = [] {
      ModuleType known;
      known.size = sizeof(Impl);
      known.padding = padding_of<Impl>();
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

/// Modules as declared fields, behind pointers, too: each is watched with its
/// tree.
struct ModuleCodec {
  static constexpr bool kFlattens = true;
  static constexpr bool kRefills = false;
};
template <class T>
requires std::is_base_of_v<torch::nn::Module, T>
struct Codec<T> : ModuleCodec {
  static void flatten(const T& value, Sink& sink) {
    know_module<T>();
    sink.module(&value);
  }
};
/// A holder.
template <class T>
requires std::
    is_base_of_v<torch::nn::ModuleHolder<typename T::ContainedType>, T>
struct Codec<T> : ModuleCodec {
  static void flatten(const T& value, Sink& sink) {
    know_module<typename T::ContainedType>();
    sink.module(value.is_empty() ? nullptr : value.get());
  }
};
template <>
struct Codec<torch::nn::AnyModule> : ModuleCodec {
  static void flatten(const torch::nn::AnyModule& value, Sink& sink) {
    sink.module(value.is_empty() ? nullptr : value.ptr().get());
  }
};

/// A new module, in zeroed memory.
template <class Impl, class... Args>
std::shared_ptr<Impl> make_module(Args&&... args) {
  constexpr bool abstract = std::is_abstract_v<Impl>;
  constexpr bool possible = std::is_constructible_v<Impl, Args...>;
  static_assert(
      !abstract,
      "temper: this module is abstract. Every temper::Module needs a `void "
      "reset() override` that makes its parameters, buffers and children.");
  static_assert(
      abstract || possible,
      "temper: the module has no such public constructor. A holder that is "
      "empty at first is written `Net net{nullptr};`.");
  if constexpr (possible) {
    return make_clean<Impl>(std::forward<Args>(args)...);
  } else {
    return nullptr;
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
