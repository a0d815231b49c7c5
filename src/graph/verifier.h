// Checks that a graph is sound: run after every stage in tests and debug
// builds.
//
// What later stages may rely on:
//  - ids are in range; a value is defined (as an input, a result or the result
//    of a write) before it is used, and once. Raw form: an op may list its own
//    operand again as a result. Values that nothing defines may exist, unused.
//  - operands, results and writes fit the operator's schema; what the schema
//    says is written is in `Op::writes`; a returned self is the operand (raw)
//    or its new content (functional).
//  - the storage of a value is set iff the form is raw.
//  - outputs and mutations are of the forward part; a joint graph's forward
//    part reads no tangent; its segments cover the backward part in order, and
//    read only tangents that have entered.
#pragma once

#include "graph/graph.h"

namespace temper::graph {

/// Throws `InternalError` naming the op, the operand or value, what was found
/// and what was expected.
void verify(const Graph& graph);

} // namespace temper::graph
