// Saying what a class holds, where its bytes do not say enough.
#pragma once

#include <temper/detail/field.h>
#include <temper/detail/module_type.h>

/// Lists members of a class, as the last thing in it:
/// \rst
/// .. code-block:: cpp
///
///   struct NetImpl : temper::Module<NetImpl> {
///     std::vector<double> scales;
///     std::map<std::string, torch::Tensor> masks;
///     Config config;                        // a plain struct
///     TEMPER_FIELDS(scales, masks, config)
///   };
/// \endrst
/// In a module: messages name these fields, and containers, strings, optionals,
/// shared pointers and structs are watched by what they hold; modules that they
/// hold, as registered children are. Without it, plain fields and tensors are
/// watched all the same, but a module that holds a pointer to heap memory
/// cannot be vouched for, and its code runs at each call. A class derived from
/// one with a list repeats the names in its own. In any other class: it can be
/// an argument or a result of compiled calls. What comes after it is public, as
/// in a struct.
#define TEMPER_FIELDS(...)                                       \
 public:                                                         \
  using TemperFields = void;                                     \
  template <class Visit>                                         \
  void temper_each_field([[maybe_unused]] Visit&& visit) {       \
    TEMPER_EACH_(TEMPER_FIELD_, __VA_ARGS__)                     \
  }                                                              \
  template <class Visit>                                         \
  void temper_each_field([[maybe_unused]] Visit&& visit) const { \
    TEMPER_EACH_(TEMPER_FIELD_, __VA_ARGS__)                     \
  }

/// Lists members of a module that results do not depend on: statistics, log
/// handles, caches that another field stands for. Changes are not noticed.
#define TEMPER_IGNORE(...)                                         \
 public:                                                           \
  using TemperIgnored = void;                                      \
  template <class Visit>                                           \
  void temper_each_ignored([[maybe_unused]] Visit&& visit) const { \
    TEMPER_EACH_(TEMPER_IGNORED_, __VA_ARGS__)                     \
  }

namespace temper {

/// Makes module types known whose objects are registered where temper does not
/// see it: as children of modules that derive from `torch::nn::Module`.
/// Children of a `temper::Module`, compiled modules and LibTorch's own are
/// known already.
template <class... Impls>
void know_modules() {
  (detail::know_module<Impls>(), ...);
}

} // namespace temper
