// Raw graph -> functional graph.
//
// Later passes may rely on:
//  - Every value is defined once, before its uses; storages are gone.
//  - An operator that writes stays that operator. `Op::writes[k].result` is the
//    new content of operand k: result = op(clone(operand)).
//  - A write through a view is followed by temper::write_through(base, view,
//    content), where `view` is reached from `base` by view operators. Later
//    reads of other views of that memory apply their view operators to the new
//    base again.
//  - Which results share memory with operands follows from ops::info alone.
//  - `Graph::mutations` has the final content of every input that the forward
//    part writes; the backward part writes to no input and no output.
//  - Operators are in the recorded order; the backward part reads what its
//    memory holds then, as the recorded run did.
// Throws Unsupported for what has no functional form.
#pragma once

#include "graph/graph.h"

namespace temper::passes {

graph::Graph functionalise(const graph::Graph& raw);

} // namespace temper::passes
