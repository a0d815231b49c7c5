// For tests only: places where a test may corrupt a graph, to see that other
// tests notice. A hook that is not set costs one load a compile.
#pragma once

#include <atomic>

#include "graph/graph.h"

namespace temper::passes {

struct TestHooks {
  using Hook = void (*)(graph::Graph&);
  /// On each functional graph, forward or joint, before it is partitioned.
  std::atomic<Hook> functional{nullptr};
  /// On each graph after re-inplacing, before it is lowered.
  std::atomic<Hook> placed{nullptr};
};

/// Process-wide.
TestHooks& test_hooks();

} // namespace temper::passes
