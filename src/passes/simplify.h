// Removes what has no effect from a functional graph, forward or joint.
//
// Later passes may rely on: every op that is left has a used result or an
// effect (a generator's state, an impure operator); alias and detach are left
// only where their result is an output, a delivery or a final content; values
// may be left that nothing defines or uses. Order, numbers, and the identity of
// outputs do not change.
#pragma once

#include "graph/graph.h"

namespace temper::passes {

graph::Graph simplify(const graph::Graph& functional);

} // namespace temper::passes
