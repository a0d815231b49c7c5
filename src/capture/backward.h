// Recording the user's own backwards: hooks on the autograd nodes between a
// traced call's outputs and its inputs switch the recorder on for exactly those
// nodes, in each backward that reaches them.
#pragma once

#include <torch/csrc/autograd/node.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "capture/autograd_region.h"
#include "capture/joint.h"
#include "capture/object_state.h"
#include "capture/recorder.h"
#include "capture/results.h"

namespace temper::capture {

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
      const TracedCall& call,
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
  /// The engine's task that ran it.
  int task() const {
    return task_;
  }
  /// True iff a backward has thrown.
  bool threw() const {
    return state_ == State::kThrew;
  }
  /// No backward can come any more: lets go of the call's arguments, while
  /// others may keep the trace.
  void graph_is_gone();
  /// Makes all hooks silent: the trace stays as it is. False, and nothing is
  /// done, while a backward is being recorded or handed over.
  bool abandon();

  // For the hooks.
  /// May replace gradients by equal ones in memory of their own.
  void before(
      torch::autograd::Node* node,
      torch::autograd::variable_list& gradients);
  void after(torch::autograd::Node* node, const at::TensorList& gradients);

 private:
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
  enum class State : uint8_t {
    kWaiting, ///< For the next backward.
    kRecording,
    kHandingOver, ///< `Done` reads what was recorded.
    kThrew,
    kDone
  };
  class EndOfTask;

  BackwardRecord() = default;
  bool start();
  void finish();
  void break_off(int task);
  void cut_into_segments();
  void close_step(int32_t step);
  bool takes_in(
      torch::autograd::Node* node,
      torch::autograd::variable_list& gradients);
  void note_reader(torch::autograd::Node* node);
  /// By graph input. Of an argument that is no leaf with a gradient only the
  /// memory is left (`Recorder::let_go_of_arguments`): it has nothing to note.
  void note_objects(std::vector<ObjectState>& states) const;
  /// What the code of a node did beside giving gradients; empty if nothing.
  std::string effect_of(
      const torch::autograd::Node& node,
      const at::TensorList& gradients) const;

  std::mutex mutex_;
  std::atomic<State> state_ = State::kWaiting;
  int task_ = -1; ///< The engine's graph task that is being recorded.
  std::unique_ptr<Recorder> recorder_;
  Done done_;
  AutogradRegion region_;
  AutogradTrace autograd_;
  RecordedBackward last_;
  // Of the backward that is being recorded.
  int32_t first_op_ = 0;
  PortMap<Contribution> pending_;
  std::vector<Sent> sent_; ///< In order of arrival.
  std::vector<int32_t> step_ends_; ///< First op after each closed step.
  std::vector<std::vector<int32_t>> step_tangents_;
  size_t ops_before_ = 0; ///< When the node began.
  size_t values_before_ = 0;
  std::vector<ObjectState> objects_before_; ///< By graph input, of user code.
  bool inside_ = false;
};

/// For tests: how many bytes of gradients end a segment, from now on and
/// process-wide.
void set_bucket_bytes(size_t bytes);

} // namespace temper::capture
