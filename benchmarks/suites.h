// The suites of measurements.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report.h"

namespace bench {

/// What a suite is run with.
struct Context {
  Timing timing;
  std::function<bool(const std::string& model)> wanted; ///< By --only.
  std::function<void(const Row&)> emit;
};

struct Suite {
  const char* name;
  std::vector<std::string> models;
  void (*run)(const Context& context);
  bool one_thread = false; ///< More would add nothing but noise.
};

/// In the order in which they run. An admitted call that has nothing to do but
/// check its guards.
Suite guard_suite();
/// Traced calls.
Suite trace_suite();
/// Shadowed calls; also part of "trace".
Suite shadow_suite();
/// Small models, admitted.
Suite models_suite();
/// A training step of the example char_gpt, with its peak memory. The last:
/// from then on an allocator that counts is in place.
Suite char_gpt_suite();

} // namespace bench
