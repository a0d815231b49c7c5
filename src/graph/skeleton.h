// What a graph is known by: its skeleton, as canonical text and as a hash.
//
// In the skeleton: operators, operands, constants, dtypes, devices, ranks,
// constant sizes, which slot a size is, stride order, which values share
// memory, writes, mutations, outputs, the backward's segments, the kinds of
// slots and objects, and of each input whether it is an argument, a tangent or
// anything else (one model's parameter may be another's buffer).
// Not in it: names, identities, slot values, and sizes and strides that were
// seen.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "graph/graph.h"

namespace temper::graph {

struct Skeleton {
  /// One line for each input, op, …, in canonical numbers.
  std::string text;
  base::Hash128 hash; ///< Of `text`.
  /// The graph's slot values in canonical numbers: what an artifact compiled
  /// from any graph of this skeleton takes.
  std::vector<c10::IValue> slots;
  /// For each slot of the graph, its canonical number.
  std::vector<int32_t> canonical_slot;
};

/// All ids in `graph` must be in range. Costs about 0.2 µs an op.
Skeleton skeleton(const Graph& graph);

/// True iff they are equal: texts are compared, not only hashes.
bool same_skeleton(const Skeleton& a, const Skeleton& b);

} // namespace temper::graph
