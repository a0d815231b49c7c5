// Recording the user's own backwards: hooks on the autograd nodes between a
// traced call's outputs and its inputs switch the recorder on for exactly those
// nodes, in each backward that reaches them.
#pragma once

#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/node.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "capture/joint.h"
#include "capture/recorder.h"
#include "capture/results.h"

namespace temper::capture {

/// The autograd facts of a traced call that don't depend on which backward
/// comes.
struct AutogradTrace {
  /// Graph outputs that require grad, each with the step of the chain where its
  /// gradient enters: 0, or later for outputs from which other outputs are
  /// computed (their gradient has a part from inside).
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

/// Waits for backwards through a traced call and records them. The hooks keep
/// it alive as long as the call's autograd graph.
class BackwardRecord : public std::enable_shared_from_this<BackwardRecord> {
 public:
  /// Called when a backward has ended. `failed()` tells.
  using Done = std::function<void(BackwardRecord&)>;

  /// Walks the autograd graph from the outputs and puts hooks on it. Returns
  /// null, with the recorder failed, if the graph has what can't be recorded;
  /// null with the recorder fine if no output requires grad.
  static std::shared_ptr<BackwardRecord> begin(
      std::unique_ptr<Recorder>& recorder,
      std::vector<ResultPlan>& plans,
      const std::vector<at::Tensor>& results,
      const std::vector<at::Tensor>& arguments,
      const std::vector<torch::autograd::Edge>& argument_edges,
      uint64_t first_sequence_number,
      AutogradTrace& autograd,
      Done done);
  ~BackwardRecord();

  bool failed() const {
    return recorder_->failed();
  }
  const std::string& reason() const {
    return recorder_->trace().unsupported;
  }
  /// The forward with every backward until now.
  const Trace& trace() const {
    return recorder_->trace();
  }
  /// The backward that ended last.
  const RecordedBackward& last() const {
    return last_;
  }
  /// True iff a backward has begun that has not ended: it threw.
  bool interrupted() const {
    return state_ == State::kRecording;
  }
  /// Makes all hooks silent.
  void abandon();

  // For the hooks.
  /// May replace gradients by equal ones in memory of their own.
  void before(
      torch::autograd::Node* node,
      torch::autograd::variable_list& gradients);
  void after(torch::autograd::Node* node, const at::TensorList& gradients);

 private:
  using Port = std::pair<torch::autograd::Node*, uint32_t>;
  struct PortHash {
    size_t operator()(const Port& port) const {
      return std::hash<const void*>()(port.first) * 31U + port.second;
    }
  };
  struct Contribution {
    graph::ValueId value = graph::kNoValue;
    int count = 0;
  };
  /// A gradient that a node sent to an input or, inside, to an output.
  struct Sent {
    graph::Delivery delivery;
    int32_t step = 0;
    int32_t at = 0; ///< The number of ops until then.
  };
  enum class State : uint8_t { kWaiting, kRecording, kDone };

  BackwardRecord() = default;
  void find_late_views(
      std::vector<ResultPlan>& plans,
      const std::vector<at::Tensor>& results) const;
  void find_reach();
  void count_edges();
  bool start();
  void finish();
  void cut_into_segments();
  void close_step(int32_t step);
  bool takes_in(
      torch::autograd::Node* node,
      torch::autograd::variable_list& gradients);
  void note_reader(torch::autograd::Node* node);

  std::mutex mutex_;
  std::atomic<State> state_ = State::kWaiting;
  int task_ = -1; ///< The engine's graph task that is being recorded.
  std::unique_ptr<Recorder> recorder_;
  Done done_;
  /// With their places in the order of the walk.
  std::unordered_map<torch::autograd::Node*, size_t> nodes_;
  std::unordered_map<Port, int32_t, PortHash> output_ports_; ///< -> index.
  std::unordered_map<Port, int32_t, PortHash> input_ports_; ///< -> index.
  AutogradTrace autograd_;
  RecordedBackward last_;
  // Of the backward that is being recorded.
  int32_t first_op_ = 0;
  std::unordered_map<Port, Contribution, PortHash> pending_;
  std::vector<Sent> sent_; ///< In order of arrival.
  std::vector<int32_t> step_ends_; ///< First op after each closed step.
  std::vector<std::vector<int32_t>> step_tangents_;
  size_t ops_before_ = 0; ///< When the node began.
  bool inside_ = false;
};

} // namespace temper::capture
