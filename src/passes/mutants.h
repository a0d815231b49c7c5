// Wrong graphs on purpose, for mutation tests: each function changes one thing
// in a graph, through a hook of test_hooks.h, and tells whether it found
// anything to change. A test suite is worth something if it notices each.
#pragma once

#include "graph/graph.h"

namespace temper::passes::mutants {

// For TestHooks::functional.

/// The first gelu (or relu, silu, tanh, sigmoid) becomes another function.
bool change_activation(graph::Graph& graph);
/// The last input that the program writes is not written.
bool drop_mutation(graph::Graph& graph);
/// Two gradients go to each other's place.
bool swap_deliveries(graph::Graph& graph);
/// The first run-time scalar is frozen to the value of the trace.
bool freeze_slot(graph::Graph& graph);

// For TestHooks::placed.

/// The last copy_ into an input is left out.
bool skip_epilogue_copy(graph::Graph& graph);

/// Sets a hook for its lifetime.
class Scope {
 public:
  explicit Scope(bool (*mutant)(graph::Graph&));
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// How many graphs were changed.
  static int changed();
};

} // namespace temper::passes::mutants
