// What temper did for one module or function: as text, and as numbers.
#pragma once

#include <torch/nn/pimpl.h>

#include <string>
#include <type_traits>

#include <temper/compile.h>
#include <temper/counters.h>
#include <temper/module.h>

namespace temper {

/// What was compiled, why, and what it cost, as text. Of a module that is not
/// compiled it says that.
template <class Impl>
std::string explain(const Module<Impl>& module) {
  return module.explain();
}
/// As above, of a holder.
template <class Impl>
requires std::is_base_of_v<Module<typename Impl::TemperRoot>, Impl> std::string
explain(const torch::nn::ModuleHolder<Impl>& holder) {
  return holder->explain();
}
/// As above, of what `temper::compile` returned.
inline std::string explain(const Compiled& compiled) {
  return compiled.explain();
}

/// The counters of one module's calls; all zero if it is not compiled.
template <class Impl>
Counters counters_of(const Module<Impl>& module) {
  const detail::Site* const site = module.temper_state().site();
  return site == nullptr ? Counters() : site->counters();
}
/// As above, of a holder.
template <class Impl>
requires std::is_base_of_v<Module<typename Impl::TemperRoot>, Impl> Counters
counters_of(const torch::nn::ModuleHolder<Impl>& holder) {
  return counters_of(*holder);
}
/// As above, of what `temper::compile` returned.
inline Counters counters_of(const Compiled& compiled) {
  return compiled.counters();
}

} // namespace temper
