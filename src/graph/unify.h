// Two graphs of one skeleton: which slot of the one is which of the other.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace temper::graph {

struct Unified {
  /// The slot values of b, in the numbering of a.
  std::vector<c10::IValue> slots;
  /// For each slot of a, that of b; and the inverse.
  std::vector<int32_t> b_slot;
  std::vector<int32_t> a_slot;
};

/// Nothing unless `a` and `b` have one skeleton; then, where `why` is given, it
/// is told the first difference in words: what, and both sides.
std::optional<Unified> unify(
    const Graph& a,
    const Graph& b,
    std::string* why = nullptr);

} // namespace temper::graph
