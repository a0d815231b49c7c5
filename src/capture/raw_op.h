// Calling one op of a raw graph.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <vector>

#include "graph/graph.h"

namespace temper::capture {

/// The tensor that an operand is.
using ValueOf = c10::function_ref<const at::Tensor&(graph::ValueId)>;

/// Calls the op through the dispatcher as the thread's state has it; returns
/// its results, flattened.
std::vector<at::Tensor> call_raw_op(
    const graph::Graph& graph,
    const graph::Op& op,
    ValueOf value_of);

/// Runs the op on real tensors, below autograd and autocast; likewise.
std::vector<at::Tensor> run_raw_op(
    const graph::Graph& graph,
    const graph::Op& op,
    ValueOf value_of);

} // namespace temper::capture
