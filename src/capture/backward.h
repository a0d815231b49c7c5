// Recording the user's own backward: hooks on the autograd nodes between a
// traced call's outputs and its inputs switch the recorder on for exactly those
// nodes, and latch off after the first backward.
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
  };
  std::vector<OutputGrad> outputs;
  /// Graph inputs to which gradients flow.
  std::vector<int32_t> inputs;
  int32_t num_steps = 1;
  /// By output, by input (as above): a path leads from one to the other.
  std::vector<std::vector<bool>> reaches;
};

/// Which backward was seen: bit i of `tangents` for `outputs[i]`, of `needed`
/// for `inputs[i]`.
struct BackwardPattern {
  std::vector<bool> tangents;
  std::vector<bool> needed;
  bool operator==(const BackwardPattern&) const = default;
};

/// Waits for the first backward through a traced call and records it.
class BackwardRecord : public std::enable_shared_from_this<BackwardRecord> {
 public:
  /// Called once, when the first backward has ended. `failed()` tells.
  using Done = std::function<void(BackwardRecord&)>;

  /// Walks the autograd graph from the outputs and puts hooks on it. Returns
  /// null, with the recorder failed, if the graph has what can't be recorded;
  /// null with the recorder fine if no output requires grad.
  static std::shared_ptr<BackwardRecord> begin(
      std::unique_ptr<Recorder>& recorder,
      const std::vector<ResultPlan>& plans,
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
  /// The joint trace, after `Done`.
  Trace& trace() {
    return recorder_->trace();
  }
  const BackwardPattern& pattern() const {
    return pattern_;
  }

  /// For each step of the chain, its first segment; after `Done`.
  const std::vector<int32_t>& step_segments() const {
    return step_segments_;
  }
  const AutogradTrace& autograd() const {
    return autograd_;
  }
  /// True iff a backward has begun.
  bool started() const {
    return state_ != State::kWaiting;
  }
  /// No backward is waited for any more.
  void abandon();
  Trace take_trace() {
    return std::move(recorder_->trace());
  }
  const Recorder& recorder() const {
    return *recorder_;
  }

  // For the hooks.
  void before(torch::autograd::Node* node, const at::TensorList& gradients);
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
  enum class State : uint8_t { kWaiting, kRecording, kDone };

  BackwardRecord() = default;
  void find_reach();
  bool start();
  void finish();
  void contribute(Contribution& sum, graph::ValueId value);
  void close_step(int32_t step);

  std::mutex mutex_;
  std::atomic<State> state_ = State::kWaiting;
  int task_ = -1; ///< The engine's graph task that is being recorded.
  std::unique_ptr<Recorder> recorder_;
  Done done_;
  std::vector<torch::autograd::Node*> nodes_;
  std::unordered_map<Port, int32_t, PortHash> output_ports_; ///< -> index.
  std::unordered_map<Port, int32_t, PortHash> input_ports_; ///< -> index.
  AutogradTrace autograd_;
  BackwardPattern pattern_;
  std::unordered_map<Port, Contribution, PortHash> pending_;
  std::vector<std::vector<graph::ValueId>> output_parts_; ///< As outputs.
  std::vector<Contribution> input_sums_; ///< As `autograd_.inputs`.
  std::vector<int32_t> input_step_; ///< The step of the last addition.
  std::vector<int32_t> input_ready_; ///< Ops recorded at the last addition.
  std::vector<int32_t> step_segments_;
  std::vector<int32_t> step_ends_; ///< First op after each closed step.
  std::vector<std::vector<int32_t>> step_tangents_;
  bool inside_ = false;
};

} // namespace temper::capture
