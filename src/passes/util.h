// Small helpers that passes share: walking operands, making values and ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace temper::passes {

/// An id as an index into a vector.
inline size_t index(int32_t id) {
  return static_cast<size_t>(id);
}

/// Calls `visit` on the id of each defined tensor of an operand, by reference.
template <class OperandT, class Visit>
void for_each_value(OperandT& operand, Visit visit) {
  if (operand.kind == graph::Operand::Kind::kValue) {
    if (operand.value != graph::kNoValue) {
      visit(operand.value);
    }
  } else if (operand.kind == graph::Operand::Kind::kValueList) {
    for (auto& id : operand.values) {
      if (id != graph::kNoValue) {
        visit(id);
      }
    }
  }
}

/// The value that a write of `op` writes to; kNoValue if it is undefined.
inline graph::ValueId written_value(
    const graph::Op& op,
    const graph::Write& write) {
  const graph::Operand& operand = op.operands[index(write.operand)];
  return write.element < 0 ? operand.value
                           : operand.values[index(write.element)];
}

/// Appends a value of this type, living in no storage.
inline graph::ValueId new_value(graph::Graph& graph, const graph::Type& type) {
  graph.values.push_back({type, -1});
  return static_cast<graph::ValueId>(graph.values.size() - 1);
}

/// For each value, the op that defines it, or -1. A write's result counts.
std::vector<int32_t> definitions(const graph::Graph& graph);

/// The operand value that each value is a view of, and kNoValue for all others.
/// Only views for certain count (ops::Alias::kView).
std::vector<graph::ValueId> view_parents(const graph::Graph& graph);

/// True iff some view's offset counts from the start of the storage: copies of
/// its operand must keep theirs.
bool has_absolute_view(const graph::Graph& graph);

/// True iff `a` and `b` have the same operator and the same arguments.
bool same_call(const graph::Op& a, const graph::Op& b);

} // namespace temper::passes
