// The region of a traced call in the autograd graph: the nodes between its
// outputs and its inputs.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/node.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/recorder.h"
#include "capture/results.h"

namespace temper::capture {

/// The autograd facts of a traced call that don't depend on which backward
/// comes.
struct AutogradTrace {
  /// Graph outputs that require grad, each with the step of the chain where its
  /// gradient enters: 0, or later for outputs from which other outputs are
  /// computed (their gradient has a part from inside) and for those made before
  /// such a one.
  struct OutputGrad {
    int32_t output = 0;
    int32_t step = 0;
    int32_t made = 0; ///< Its place in the order in which nodes were made.
    bool operator==(const OutputGrad&) const = default;
  };
  std::vector<OutputGrad> outputs;
  /// Graph inputs to which gradients flow.
  std::vector<int32_t> inputs;
  int32_t num_steps = 1;
  /// Where a gradient goes from an output: bit i for `inputs[i]`, `outputs[i]`
  /// and the i-th autograd node of the call.
  struct Reach {
    std::vector<bool> inputs;
    std::vector<bool> outputs;
    std::vector<bool> nodes;
    bool operator==(const Reach&) const = default;
  };
  std::vector<Reach> reach; ///< By output.
  /// How many edges lead from what one step takes in to each of `inputs` and,
  /// of later steps, of `outputs`.
  struct Edges {
    std::vector<int32_t> inputs;
    std::vector<int32_t> outputs;
    bool operator==(const Edges&) const = default;
  };
  std::vector<Edges> edges; ///< By step.
  bool operator==(const AutogradTrace&) const = default;
};

/// Where a gradient arrives: a node and the number of its input.
using Port = std::pair<torch::autograd::Node*, uint32_t>;

struct PortHash {
  size_t operator()(const Port& port) const {
    return std::hash<const void*>()(port.first) * 31U + port.second;
  }
};

template <typename T>
using PortMap = std::unordered_map<Port, T, PortHash>;

struct AutogradRegion {
  /// With their places in the order of the walk.
  std::unordered_map<torch::autograd::Node*, size_t> nodes;
  PortMap<int32_t> outputs; ///< -> index into `AutogradTrace::outputs`.
  PortMap<int32_t> inputs; ///< -> index into `AutogradTrace::inputs`.
};

/// A traced call whose code has returned.
struct TracedCall {
  std::vector<ResultPlan>& plans;
  const std::vector<at::Tensor>& results; ///< As `plans`.
  const std::vector<at::Tensor>& arguments;
  /// As `arguments`: their gradient edges when the call began.
  const std::vector<torch::autograd::Edge>& argument_edges;
  /// Nodes made before the call have smaller ones.
  uint64_t first_sequence_number = 0;
};

/// Walks the autograd graph from the outputs and fills `autograd`. Empty, with
/// the recorder failed, if the graph has what can't be recorded; empty with the
/// recorder fine if no output requires grad.
std::optional<AutogradRegion> find_region(
    Recorder& recorder,
    const TracedCall& call,
    AutogradTrace& autograd);

/// Fills `ResultPlan::late`.
void find_late_views(const AutogradRegion& region, const TracedCall& call);

/// True iff the backward that runs on this thread visits the node, should a
/// gradient reach it.
bool will_visit(torch::autograd::Node* node);

} // namespace temper::capture
