// One argument of a compiled call: how it is kept, and what may happen to it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <temper/detail/containers.h>
#include <temper/detail/signature.h>

namespace temper::detail {

/// The base of `Hold` where there is nothing to do.
template <class T, bool = std::is_array_v<T>>
struct HoldSame {
  using Held = T;
  static constexpr bool kSame = true;
  static Held keep(const T& value) {
    return value;
  }
};
template <class T>
struct HoldSame<T, true> {
  static constexpr bool kSame = true;
};

/// How an argument of type T is kept beyond the caller's own: a copy, and for
/// views a copy of what they show. `pass` is what the code gets to see.
template <class T>
struct Hold : HoldSame<T> {};

/// The base of those that keep something else.
template <class T, class H>
struct HoldAs {
  using Held = H;
  static constexpr bool kSame = false;
  static Held keep(const T& value) {
    return Held(value.begin(), value.end());
  }
  static T pass(Held& held) {
    return T(held);
  }
};

template <class T>
struct Hold<c10::ArrayRef<T>>
    : HoldAs<c10::ArrayRef<T>, c10::SmallVector<T, 8>> {};
template <>
struct Hold<std::string_view> : HoldAs<std::string_view, std::string> {};
template <class T>
struct Hold<std::span<T>>
    : HoldAs<std::span<T>, c10::SmallVector<std::remove_const_t<T>, 8>> {};
template <class O, class T>
struct HoldOptional {
  using Held = std::optional<c10::SmallVector<T, 8>>;
  static constexpr bool kSame = false;
  static Held keep(const O& value) {
    return value ? Held({value->begin(), value->end()}) : Held();
  }
  static O pass(Held& held) {
    return held ? O(*held) : O();
  }
};
template <class T>
struct Hold<c10::OptionalArrayRef<T>>
    : HoldOptional<c10::OptionalArrayRef<T>, T> {};
template <class T>
struct Hold<std::optional<c10::ArrayRef<T>>>
    : HoldOptional<std::optional<c10::ArrayRef<T>>, T> {};
template <>
struct Hold<const char*> {
  using Held = std::optional<std::string>;
  static constexpr bool kSame = false;
  static Held keep(const char* value) {
    return value == nullptr ? Held() : Held(value);
  }
  static const char* pass(Held& held) {
    return held ? held->c_str() : nullptr;
  }
};

/// True iff an argument of this type can be compiled over.
template <class T>
constexpr bool kIsArgument = Codec<T>::kFlattens &&
    (Codec<T>::kRefills || !Hold<T>::kSame);

/// Asserts that T can be passed or returned, in words for the user.
template <class T, bool kResult>
struct CheckStructured {
  static_assert(
      kResult ? Codec<T>::kRefills : kIsArgument<T>,
      "temper: this type cannot be an argument or a result of a compiled "
      "call: it holds something other than tensors, numbers, strings, "
      "optionals, tuples, containers and plain structs of those. Make it such "
      "a struct (public members, no constructors, no base class, not holding "
      "structs of its own type), or list its members inside it with "
      "TEMPER_FIELDS(a, b); a module or a state that "
      "the code only uses is captured instead, and named to "
      "temper::compile(f, state).");
};

/// The argument as it is, or as its parameter's type.
template <class Param, class Arg>
decltype(auto) adapt(std::remove_reference_t<Arg>& arg) {
  using Plain = std::remove_cvref_t<Arg>;
  using Wanted = std::remove_cvref_t<Param>;
  if constexpr (kIsArgument<Plain>) {
    return static_cast<Arg&&>(arg);
  } else if constexpr (
      std::is_convertible_v<Arg, const char*> &&
      (std::is_same_v<Param, UnknownParam> || std::is_pointer_v<Wanted>)) {
    return static_cast<const char*>(arg);
  } else if constexpr (
      !std::is_same_v<Param, UnknownParam> && kIsArgument<Wanted> &&
      std::is_convertible_v<Arg, Wanted>) {
    return Wanted(static_cast<Arg&&>(arg));
  } else {
    static_cast<void>(CheckStructured<Plain, false>{});
    return static_cast<Arg&&>(arg);
  }
}

/// True iff the code may leave another value in the caller's variable.
template <class Param, class Arg>
constexpr bool kInOut = std::is_lvalue_reference_v<Arg> &&
    !std::is_const_v<std::remove_reference_t<Arg>> &&
    Hold<std::remove_cvref_t<Arg>>::kSame &&
    std::is_copy_assignable_v<std::remove_cvref_t<Arg>> &&
    (std::is_same_v<Param, UnknownParam> ||
     (std::is_lvalue_reference_v<Param> &&
      !std::is_const_v<std::remove_reference_t<Param>>));

/// True iff the call leaves the caller's variable moved-from.
template <class Param, class Arg>
constexpr bool kConsumed =
    std::is_same_v<Arg, at::Tensor>&& std::is_same_v<Param, at::Tensor>;

} // namespace temper::detail
