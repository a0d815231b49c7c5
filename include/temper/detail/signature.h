// The parameter types of a callable, where they can be named.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace temper::detail {

/// Stands for a parameter whose type is not known: of an overloaded function
/// or a template.
struct UnknownParam {};

/// The parameter types, as declared.
template <class... P>
struct Params {
  static constexpr bool kKnown = true;
  /// The type of parameter I; unknown past the last.
  template <size_t I>
  static auto at() {
    if constexpr (I < sizeof...(P)) {
      return std::type_identity<std::tuple_element_t<I, std::tuple<P...>>>{};
    } else {
      return std::type_identity<UnknownParam>{};
    }
  }
};

struct UnknownParams {
  static constexpr bool kKnown = false;
  template <size_t>
  static auto at() {
    return std::type_identity<UnknownParam>{};
  }
};

template <class Parameters, size_t I>
using ParamAt = typename decltype(Parameters::template at<I>())::type;

// `Params` of a function, function pointer or pointer to member function.
template <class F>
struct ParamsOfType {
  using type = UnknownParams;
};
template <class R, class... P>
struct ParamsOfType<R(P...)> {
  using type = Params<P...>;
};
template <class R, class... P>
struct ParamsOfType<R(P...) noexcept> {
  using type = Params<P...>;
};
template <class F>
struct ParamsOfType<F*> : ParamsOfType<F> {};

#define TEMPER_PARAMS_OF_MEMBER(...)                \
  template <class R, class C, class... P>           \
  struct ParamsOfType<R (C::*)(P...) __VA_ARGS__> { \
    using type = Params<P...>;                      \
  };
TEMPER_PARAMS_OF_MEMBER()
TEMPER_PARAMS_OF_MEMBER(const)
TEMPER_PARAMS_OF_MEMBER(&)
TEMPER_PARAMS_OF_MEMBER(const&)
TEMPER_PARAMS_OF_MEMBER(noexcept)
TEMPER_PARAMS_OF_MEMBER(const noexcept)
TEMPER_PARAMS_OF_MEMBER(&noexcept)
TEMPER_PARAMS_OF_MEMBER(const& noexcept)
#undef TEMPER_PARAMS_OF_MEMBER

// `Params` of `Impl::forward`.
template <class Impl>
struct ForwardParams {
  using type = UnknownParams;
};
template <class Impl>
requires requires {
  &Impl::forward;
}
struct ForwardParams<Impl> : ParamsOfType<decltype(&Impl::forward)> {};

// `Params` of a function or of an object's call operator.
template <class F>
struct CallableParams : ParamsOfType<F> {};
template <class F>
requires requires {
  &F::operator();
}
struct CallableParams<F> : ParamsOfType<decltype(&F::operator())> {};

} // namespace temper::detail
