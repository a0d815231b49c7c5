// A backward that the plan has no program for: the user's code runs again, as
// it was called, and autograd gives the gradients.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dispatch/plan.h"

namespace temper::dispatch {

class BackwardRerun {
 public:
  /// At the call, when its outputs have their history. Keeps the arguments.
  BackwardRerun(
      std::shared_ptr<const Plan> plan,
      std::vector<at::Tensor> arguments,
      const std::vector<at::Tensor>& outputs,
      BackwardFallback fallback);

  /// What one step sends on: the contributions to each gradient, in order.
  struct Gradients {
    std::vector<std::vector<at::Tensor>> inputs; ///< As `autograd.inputs`.
    /// As `autograd.outputs`: of later steps.
    std::vector<std::vector<at::Tensor>> outputs;
  };
  /// The gradients that come of `tangents`, which enter at `entering` (indices
  /// into `autograd.outputs`), all of one step. Runs the code if this has not
  /// happened in this backward. Throws `temper::Error` where it can't run
  /// again.
  Gradients gradients(
      const std::vector<int32_t>& entering,
      const std::vector<at::Tensor>& tangents);

  /// Lets go of the run of this backward.
  void end_backward();
  /// Tells the call site that an unknown backward came.
  void report() const;
  /// Counts a whole backward served by the artifact.
  void count_program_backward() const;
  /// Lets go of all that a run needs; there is none after that.
  void release();

 private:
  void run(bool differentiable);
  void check_inputs() const;
  void note_changed_outputs();

  std::shared_ptr<const Plan> plan_;
  std::vector<at::Tensor> arguments_;
  BackwardFallback fallback_;
  bool released_ = false;
  std::vector<int64_t> versions_; ///< As `plan.forward_inputs`, at the call.
  /// As `autograd.outputs`: their counters, and where these were at the call.
  std::vector<c10::VariableVersion> output_versions_;
  std::vector<uint32_t> output_starts_;
  std::optional<capture::GeneratorState> generator_;
  at::ThreadLocalState thread_state_;
  // Of the run.
  std::vector<at::Tensor> outputs_; ///< As `autograd.outputs`.
  std::vector<at::Tensor> inputs_; ///< As `autograd.inputs`.
  std::vector<uint32_t> changes_; ///< Of outputs, that the run's have seen.
};

} // namespace temper::dispatch
