// Reads a graph from its text (see printer.h).
#pragma once

#include <string_view>

#include "graph/graph.h"

namespace temper::graph {

/// The graph that `print` gave this text of, equal in every field. Throws
/// `Error` with line, column, what was found and what was expected. Whether
/// the graph is sound is for the verifier to say.
Graph parse(std::string_view text);

} // namespace temper::graph
