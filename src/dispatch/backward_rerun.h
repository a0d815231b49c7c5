// A backward that the plan has no program for: the user's code runs again, as
// it was called, and autograd gives the gradients.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/node.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/plan.h"

namespace temper::dispatch {

/// True iff this thread runs the code of a call again.
bool rerunning();

/// Of one call: what its code needs to run again, and the graph of that run.
class BackwardRerun {
 public:
  /// At the call, before its outputs get their history. Keeps what the
  /// arguments are now, not the tensors: these could get a history that leads
  /// here.
  BackwardRerun(
      std::shared_ptr<const Plan> plan,
      const std::vector<at::Tensor>& arguments,
      const std::vector<at::Tensor>& outputs,
      BackwardFallback fallback);

  /// What one step sends on: the contributions to each gradient, in order.
  struct Gradients {
    std::vector<std::vector<at::Tensor>> inputs; ///< As `autograd.inputs`.
    /// As `autograd.outputs`: of later steps.
    std::vector<std::vector<at::Tensor>> outputs;
  };
  /// The gradients that come of `tangents`, which enter at `entering` (indices
  /// into `autograd.outputs`), all of one step. Runs the code unless the graph
  /// of an earlier run can be used; one that makes a graph serves one step.
  /// Throws `temper::Error` where it can't run again. In a backward that makes
  /// a graph, what leads to an output in that graph leads to its node among
  /// `results`, if that is not null.
  Gradients gradients(
      const std::vector<int32_t>& entering,
      const std::vector<at::Tensor>& tangents,
      const std::vector<c10::intrusive_ptr<torch::autograd::Node>>& results);

  /// Tells the call site that an unknown backward came; with a reason, that
  /// its calls are not to be compiled any more.
  void report(const std::string& reason = "") const;
  /// Counts a whole backward served by the artifact.
  void count_program_backward() const;
  /// Lets go of all that a run needs; there is none after that.
  void release();

 private:
  void run(bool differentiable);
  std::vector<at::Tensor> aliases(bool differentiable) const;
  Result run_code(const std::vector<at::Tensor>& arguments);
  void take_outputs(const Result& result);
  void check_inputs() const;
  void forget_parents() const;
  void note_changed_outputs();
  /// Turns edges to the run's outputs, in the graph behind these gradients.
  void lead_to(
      const std::vector<c10::intrusive_ptr<torch::autograd::Node>>& results,
      const torch::autograd::variable_list& gradients) const;

  std::shared_ptr<const Plan> plan_;
  std::vector<at::Tensor> arguments_; ///< Leaves, or detached aliases.
  /// Of arguments that require grad and are no leaves: where their gradients
  /// go. The chain's own edges keep these nodes, as long as gradients can go
  /// there: the engine frees long histories without recursion only through
  /// edges.
  struct History {
    bool requires_grad = false;
    c10::weak_intrusive_ptr<torch::autograd::Node> node{
        c10::intrusive_ptr<torch::autograd::Node>()};
    uint32_t input = 0;
  };
  std::vector<History> histories_;
  std::vector<size_t> same_as_; ///< The first argument that is this tensor.
  BackwardFallback fallback_;
  bool released_ = false;
  std::vector<int64_t> versions_; ///< As `plan.forward_inputs`, at the call.
  /// As `autograd.outputs`: their counters, and where these were at the call.
  std::vector<c10::VariableVersion> output_versions_;
  std::vector<uint32_t> output_starts_;
  std::optional<capture::GeneratorState> generator_;
  at::ThreadLocalState thread_state_;
  // Of the run. A second backward goes through the same graph, if that does not
  // make one itself, so that autograd says whether it may.
  bool differentiable_ = false;
  uint64_t first_sequence_number_ = 0; ///< Of the run's nodes.
  std::vector<at::Tensor> outputs_; ///< As `autograd.outputs`.
  std::vector<at::Tensor> inputs_; ///< As `autograd.inputs`.
  std::vector<uint32_t> changes_; ///< Of outputs, that the run's have seen.
};

} // namespace temper::dispatch
