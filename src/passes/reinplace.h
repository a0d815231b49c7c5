// Functional graph of one program -> raw graph that runs in its memory.
//
// Later passes may rely on: the result is a raw graph whose operators, run one
// after the other, give the outputs and mutations of the functional graph:
// values are tensor objects, writes happen in place, write_through is gone.
// Of a functional graph in recorded order it writes in place all that was
// recorded as written in place. A copy (temper::copy_memory) is made only
// where an older content is read later, or where the memory is no input that
// the graph may change and no value of its own; a final content that did not
// come about in its input is copied there by a last copy_.
// Views of memory that an object sees already are that object, except where
// both are outputs.
// Throws Unsupported for an operator that reads, through another view, memory
// that it would have to write to in a copy.
// The graph has no backward part; `as_output` mutations are appended to its
// outputs.
#pragma once

#include "graph/graph.h"

namespace temper::passes {

graph::Graph reinplace(const graph::Graph& functional);

} // namespace temper::passes
