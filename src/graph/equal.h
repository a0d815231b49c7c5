// Equality of graphs in every field.
#pragma once

#include "graph/graph.h"

namespace temper::graph {

/// True iff no field of the two differs: names, hints, numbers and slot values
/// count, and doubles are compared by their bits. To ask whether two graphs
/// compute the same, compare skeletons.
bool equal(const Graph& a, const Graph& b);

bool equal(const Type& a, const Type& b);

} // namespace temper::graph
