// The canonical numbers of a graph's values, slots and storages: by first
// appearance, so that they depend on the structure and not on the recorder.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace temper::graph {

/// From numbers of a graph to canonical ones.
struct Numbering {
  /// Indexed by ValueId; -1 for a value that nothing mentions.
  std::vector<int32_t> values;
  int32_t num_values = 0;
  /// Indexed by slot; a permutation: slots that nothing mentions come last, in
  /// their old order.
  std::vector<int32_t> slots;
  /// Indexed by `Value::storage` minus `first_storage`.
  std::vector<int32_t> storages;
  int32_t first_storage = 0;

  ValueId value(ValueId id) const {
    return id < 0 ? kNoValue : values[static_cast<size_t>(id)];
  }
  int32_t slot(int32_t slot) const {
    return slots[static_cast<size_t>(slot)];
  }
  int32_t storage(int32_t storage) const {
    return storage < 0 ? -1
                       : storages[static_cast<size_t>(storage - first_storage)];
  }
};

/// All ids in `graph` must be in range.
Numbering number(const Graph& graph);

/// The same graph in canonical numbers, without the values that nothing
/// mentions. What is compiled from it serves every graph of its skeleton, with
/// the slot table that `skeleton` returns.
Graph canonicalize(const Graph& graph);

} // namespace temper::graph
