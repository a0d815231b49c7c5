// Checks one op of a graph against the schema of its operator.
#pragma once

#include <functional>
#include <string>

#include "graph/graph.h"

namespace temper::graph {

/// What is wrong with the op's operands, results and writes as far as its
/// schema can tell; empty if nothing is. Slots and objects must be in range.
std::string schema_mismatch(const Graph& graph, const Op& op);

} // namespace temper::graph
