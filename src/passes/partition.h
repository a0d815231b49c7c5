// Joint functional graph -> one graph for the forward, one for each segment of
// the backward, and what passes between them.
//
// Later passes may rely on:
//  - No graph has segments; each holds its ops in recorded order.
//  - `forward` has the graph's inputs without the tangents; its outputs are the
//    graph's outputs, the contents of `as_output` mutations, and the private
//    saved values. Its other mutations are its own.
//  - A segment's inputs are the saved values it reads, its tangents, the
//    carried values it reads; its outputs its deliveries, then what it carries
//    out. It mutates nothing.
//  - What the user can reach (inputs, outputs and their memory) is read by the
//    backward only where the recorded backward read it; else it is copied.
//  - No value is saved twice, and no view of a saved value is saved.
//  - RNG and impure operators and writes are never repeated.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace temper::passes {

struct PartitionOptions {
  /// Cheap elementwise operators may run again in the backward. Only tests ask
  /// for it: without fused kernels that costs time ("aten" would gain memory).
  bool recompute_cheap = false;
};

/// A value that the forward keeps: see runtime::Saved.
struct SavedValue {
  enum class Kind : uint8_t { kInput, kOutput, kPrivate };
  Kind kind = Kind::kPrivate;
  int32_t index = 0;
  int32_t shares_output = -1; ///< See runtime::Saved.
  bool only_views = false; ///< Likewise.
};

struct SegmentGraph {
  graph::Graph graph;
  std::vector<int32_t> saved;
  std::vector<int32_t> carried_in;
  std::vector<int32_t> carried_out;
};

struct Partition {
  graph::Graph forward;
  int32_t num_outputs = 0;
  std::vector<SavedValue> saved;
  std::vector<SegmentGraph> segments;
  int32_t num_carried = 0;
};

Partition partition(
    const graph::Graph& joint,
    const PartitionOptions& options = {});

} // namespace temper::passes
