// Until when the values of a functional graph are read, and which writes lead
// to an input's final content.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace temper::passes {

/// For each value, the last op that needs its content: -1 if none does, the
/// number of ops if it is an output or a final content. The base and the view
/// of a write_through do not count: nothing reads them where the write happened
/// in place.
std::vector<int32_t> last_reads(const graph::Graph& functional);

/// The results of writes and write_throughs through which an input gets its
/// final content, if that came about by these only.
std::optional<std::vector<graph::ValueId>> final_writes(
    const graph::Graph& functional,
    const std::vector<int32_t>& definitions,
    const graph::Mutation& mutation);

} // namespace temper::passes
