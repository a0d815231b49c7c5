// Everything that a proved call needs: artifact, bindings, slots, results.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/backward.h"
#include "capture/generator_state.h"
#include "capture/old_contents.h"
#include "capture/results.h"
#include "capture/trace.h"
#include "dispatch/call.h"
#include "dispatch/chain.h"
#include "runtime/artifact.h"

namespace temper::dispatch {

/// Immutable, shared by the calls of one signature and their backwards.
struct Plan {
  std::string name; ///< Of the call site, for messages.
  std::shared_ptr<const runtime::Artifact> artifact;
  std::shared_ptr<const capture::Trace> trace;
  std::vector<c10::IValue> slots; ///< In the artifact's order.
  /// Inputs of the forward program, as indices into the graph's inputs.
  std::vector<int32_t> forward_inputs;
  std::vector<capture::ResultPlan> results;
  /// Arguments that the call writes with a history, and which get one from it:
  /// the last of `results` and `result_values`, beyond those of the code.
  std::vector<int32_t> rewritten;
  /// Results that are views to be taken, in the order of the call.
  std::vector<size_t> views;
  /// What each result was in the trace; kNoValue if undefined.
  std::vector<graph::ValueId> result_values;
  std::vector<int32_t> mutated; ///< Graph inputs that the program writes.
  std::vector<int32_t> versioned; ///< Those with `version_steps`.
  /// Of `mutated`, those from whose present content a second run of the code
  /// would compute something else.
  std::vector<int32_t> changed_for_a_rerun;
  /// True iff the code can run instead of a program that has thrown: nothing
  /// was written, and no operator may have other effects.
  bool can_rerun = false;
  /// Some operator of another library, in the call or in a backward of it, may
  /// return other sizes than recorded (`ops::UnexpectedLayout`).
  bool expects_layouts = false;
  std::string result_structure;
  std::shared_ptr<const void> prototype;

  bool inference = false; ///< Outputs are made in inference mode.
  bool differentiable = false; ///< Some output requires grad.
  capture::AutogradTrace autograd;
  /// The backwards that have been seen; another one runs the code again.
  std::vector<capture::RecordedBackward> backwards;
  Chain chain; ///< If differentiable.
  /// By recorded backward, by autograd node: it visits the node, which reads
  /// saved data, if not in this backward then in another. Eager's nodes take
  /// all that they have saved, whichever gradients are asked for.
  std::vector<std::vector<bool>> readers;

  /// True iff this autograd node reads saved data in some recorded backward.
  bool is_reader(size_t node) const;
  /// True iff some recorded backward visited it.
  bool is_visited(size_t node) const;
  /// True iff this graph input is one of the arguments `rewritten`.
  bool is_rewritten(int32_t input) const;
};

/// What a backward that the plan doesn't know needs: asked for at the call.
struct BackwardFallback {
  /// The user's code and what it was called with.
  std::function<Result(const std::vector<at::Tensor>&)> rerun;
  /// Throws if the state that the code can see isn't what it was.
  std::function<void()> check_state;
  /// Tells the call site that an unknown backward came (and its reason).
  std::function<void(const std::string&)> report;
  /// Where the random numbers of the call began, if it draws any.
  std::optional<capture::GeneratorState> generator;
  /// What was in the inputs `Plan::changed_for_a_rerun` before the call.
  std::vector<at::Tensor> old_contents;
  /// Counts one whole backward served by the artifact.
  std::function<void()> count;
};

/// The tensor of a graph input at this call.
at::Tensor input_tensor(
    const Plan& plan,
    int32_t input,
    const std::vector<at::Tensor>& arguments);

/// What is in the inputs that the program writes.
capture::OldContents contents_of_mutated(
    const Plan& plan,
    const std::vector<at::Tensor>& arguments);

/// True iff a gradient that is taken inside the call would run a hook that is
/// on one of its inputs.
bool runs_hooks(
    const capture::Trace& trace,
    const std::vector<at::Tensor>& arguments);

/// Runs a call whose signature has been proved and returns its results; nothing
/// if an operator threw and `can_rerun`.
std::optional<std::vector<at::Tensor>> run_plan(
    const std::shared_ptr<const Plan>& plan,
    const std::vector<at::Tensor>& arguments,
    c10::function_ref<BackwardFallback()> make_fallback);

} // namespace temper::dispatch
