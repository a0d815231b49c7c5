// What TEMPER_FIELDS and TEMPER_IGNORE expand to, and how a watch is told.
#pragma once

#include <string>
#include <type_traits>

#include <temper/detail/containers.h>
#include <temper/detail/site.h>

namespace temper::detail {

/// Asserts that T can be a declared field, in words for the user.
template <class T>
struct CheckField {
  static_assert(
      Codec<T>::kFlattens,
      "temper: TEMPER_FIELDS cannot watch a field of this type: it holds "
      "something other than tensors, numbers, strings, modules, optionals, "
      "smart pointers to and containers and plain structs of those. List it "
      "with TEMPER_IGNORE if results do not depend on it; else make its class "
      "list its own members with TEMPER_FIELDS.");
};

/// Tells one declared field.
template <class T>
void describe_field(const T& field, const std::string& name, State& state) {
  static_cast<void>(CheckField<T>{});
  state.content(&field, sizeof(T), name, [](const void* object, Sink& sink) {
    detail::flatten(*static_cast<const T*>(object), sink);
  });
}

/// Tells all that a module's class declares, and what temper keeps in it.
template <class Impl>
void describe_fields(const Impl& self, State& state) {
  if constexpr (requires { self.temper_hidden(state); }) {
    self.temper_hidden(state);
  }
  if constexpr (requires { typename Impl::TemperFields; }) {
    self.temper_each_field([&](const char* name, const auto& field) {
      describe_field(field, name, state);
    });
  }
  if constexpr (requires { typename Impl::TemperIgnored; }) {
    self.temper_each_ignored(
        [&](const auto& field) { state.ignore(&field, sizeof(field)); });
  }
}

} // namespace temper::detail

// Applies a macro to each of up to 256 arguments.
#define TEMPER_PARENS_ ()
#define TEMPER_EXPAND_(...) \
  TEMPER_EXPAND4_(          \
      TEMPER_EXPAND4_(TEMPER_EXPAND4_(TEMPER_EXPAND4_(__VA_ARGS__))))
#define TEMPER_EXPAND4_(...) \
  TEMPER_EXPAND3_(           \
      TEMPER_EXPAND3_(TEMPER_EXPAND3_(TEMPER_EXPAND3_(__VA_ARGS__))))
#define TEMPER_EXPAND3_(...) \
  TEMPER_EXPAND2_(           \
      TEMPER_EXPAND2_(TEMPER_EXPAND2_(TEMPER_EXPAND2_(__VA_ARGS__))))
#define TEMPER_EXPAND2_(...) \
  TEMPER_EXPAND1_(           \
      TEMPER_EXPAND1_(TEMPER_EXPAND1_(TEMPER_EXPAND1_(__VA_ARGS__))))
#define TEMPER_EXPAND1_(...) __VA_ARGS__
#define TEMPER_EACH_(macro, ...) \
  __VA_OPT__(TEMPER_EXPAND_(TEMPER_EACH_STEP_(macro, __VA_ARGS__)))
#define TEMPER_EACH_STEP_(macro, first, ...) \
  macro(first) __VA_OPT__(TEMPER_EACH_AGAIN_ TEMPER_PARENS_(macro, __VA_ARGS__))
#define TEMPER_EACH_AGAIN_() TEMPER_EACH_STEP_
// Of a bit field, which has no address, a visitor would get a copy.
#define TEMPER_HAS_ADDRESS_(name) static_cast<void>(sizeof(&(name)))
#define TEMPER_FIELD_(name)  \
  TEMPER_HAS_ADDRESS_(name); \
  visit(#name, name);
#define TEMPER_IGNORED_(name) \
  TEMPER_HAS_ADDRESS_(name);  \
  visit(name);
