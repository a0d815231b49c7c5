// The passes in their order.
//
//   raw -> functionalise -> simplify -> partition -> for the forward and each
//   segment: simplify -> reinplace
//
// Each runs in one wrapper, which times it, verifies its result (in builds with
// TEMPER_VERIFY) and logs it under the topic `graph`.
#pragma once

#include "graph/graph.h"
#include "passes/partition.h"

namespace temper::passes {

struct PipelineOptions {
  PartitionOptions partition;
};

/// The functional graph of a raw one, simplified.
graph::Graph canonicalise(const graph::Graph& raw);

/// All passes. The graphs of the result are raw again: ready for lowering.
Partition run_pipeline(
    const graph::Graph& raw,
    const PipelineOptions& options = {});

} // namespace temper::passes
