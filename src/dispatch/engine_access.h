// What autograd's engine does not offer to a node: to take an edge out of the
// backward that is running.
//
// All outputs of a compiled call hang on one chain of nodes, so the engine
// believes that a gradient of one output leads to all inputs. Where it leads to
// nothing, eager's engine never visits what lies behind; an undefined gradient
// sent there would call hooks, and custom functions would make zeros of it. So
// such edges are taken out of the engine's counts.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/graph_task.h>

#include <vector>

namespace temper::dispatch {

/// The backward that runs on this thread, or null.
torch::autograd::GraphTask* current_graph_task();

/// Takes one edge to `target` out of the task, the one that runs on this
/// thread, with all that only it leads to. False, and nothing changed, where
/// the target is not to be visited anyway, or holds a gradient and waits for
/// nothing else: then an undefined gradient must be sent. Nodes behind it that
/// do so are added to `waiting`: they must get an undefined gradient from the
/// node that runs now.
bool remove_edge(
    torch::autograd::GraphTask& task,
    torch::autograd::Node* target,
    std::vector<torch::autograd::Node*>& waiting);

/// How many edges that lead to the node have not been followed yet.
int pending_edges(
    torch::autograd::GraphTask& task,
    torch::autograd::Node* node);

/// True iff a gradient has come to this input of a node that is not ready yet.
bool has_gradient(
    torch::autograd::GraphTask& task,
    torch::autograd::Node* node,
    uint32_t input);

} // namespace temper::dispatch
