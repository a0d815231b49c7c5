// The backend "aten": the graph's operators, run by ATen as recorded.
//
// Same bits as eager, whatever `BackendOptions::numerics` allows. Nothing is
// computed twice but views.
#pragma once

#include <memory>

#include "codegen/backend.h"
#include "graph/graph.h"
#include "runtime/artifact.h"

namespace temper::codegen {

/// See Backend.
std::shared_ptr<const runtime::Artifact> compile_aten(
    const graph::Graph& raw,
    const BackendOptions& options = {});

} // namespace temper::codegen
