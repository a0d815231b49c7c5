// The autograd side of a compiled call: a chain of nodes, see chain.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "dispatch/plan.h"

namespace temper::dispatch {

/// Gives the outputs (of the graph, in order) that require grad a history: the
/// nodes that run the artifact's backward segments. `private_values` are the
/// forward program's saved ones.
void attach_backward(
    const std::shared_ptr<const Plan>& plan,
    const std::vector<at::Tensor>& arguments,
    std::vector<at::Tensor>& outputs,
    std::vector<at::Tensor> private_values,
    BackwardFallback fallback);

} // namespace temper::dispatch
