// The chain of autograd nodes behind the outputs of a compiled call, as far as
// it is the same for all calls of a plan.
//
// A step of the chain is where gradients of outputs enter. It has as many nodes
// as the longest of its recorded backwards has segments there. The edges of a
// node are what any of these backwards delivers there, each as often as the one
// that delivers it most; the last node of a step has further ones for what a
// backward that is not known may deliver.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/backward.h"
#include "capture/joint.h"
#include "runtime/artifact.h"

namespace temper::dispatch {

struct Chain {
  /// Where an edge of a node leads.
  struct Target {
    enum class Kind : uint8_t { kInput, kOutput } kind = Kind::kInput;
    int32_t index = 0; ///< Into `AutogradTrace::inputs` or `outputs`.
    bool operator==(const Target&) const = default;
  };
  struct Node {
    int32_t step = 0;
    /// First node of a step: the outputs whose gradients enter, as indices into
    /// `AutogradTrace::outputs`. The node's input i is that of `entering[i]`.
    std::vector<int32_t> entering;
    /// By edge; behind these comes one to the next node.
    std::vector<Target> targets;
  };
  /// What a node does in a recorded backward.
  struct Work {
    int32_t segment = -1; ///< That it runs, or -1.
    /// By tangent of the segment: the node's input.
    std::vector<int32_t> tangents;
    std::vector<int32_t> targets; ///< By delivery of the segment: the edge.
    std::vector<int32_t> idle; ///< Edges that get nothing.
    /// A delivery that is a view and not the only contribution: until the last
    /// one has come the engine must not add in place to its memory, which was
    /// shared in eager.
    struct Shared {
      int32_t delivery = 0;
      int32_t last_node = 0; ///< That contributes to the same gradient.
    };
    std::vector<Shared> shared;
  };
  struct Run {
    std::vector<Work> nodes;
    /// By saved value: the last node that reads it, or -1.
    std::vector<int32_t> last_reader;
    std::vector<int32_t> last_carried; ///< Likewise by carried value.
    /// By output that requires grad: some segment contributes to its gradient.
    std::vector<bool> delivers;
  };

  std::vector<Node> nodes;
  /// By step its first node; then the number of nodes.
  std::vector<int32_t> first_of_step;
  std::vector<Run> runs; ///< By recorded backward.
  /// By input: its place in the order in which the first recorded backward has
  /// its gradient whole.
  std::vector<uint64_t> input_order;

  int32_t first_node(int32_t step) const {
    return first_of_step[static_cast<size_t>(step)];
  }
};

Chain make_chain(
    const graph::Graph& joint,
    const capture::AutogradTrace& autograd,
    const std::vector<capture::RecordedBackward>& backwards,
    const runtime::Artifact& artifact);

} // namespace temper::dispatch
