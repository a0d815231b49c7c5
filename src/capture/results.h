// What a traced call returned, in terms of its graph, and how to make it again.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "capture/recorder.h"

namespace temper::capture {

/// How to make one tensor of the result.
struct ResultPlan {
  enum class Kind : uint8_t {
    kUndefined,
    kSame, ///< The same object as the earlier result `index`.
    kInput, ///< Graph input `index`, seen through `chain`.
    kOutput, ///< Graph output `index`, seen through `chain`.
  };
  /// A view op of the graph, called above autograd.
  struct Step {
    int32_t op = 0; ///< Index into the graph's ops.
    int32_t result = 0; ///< Which of its results.
    bool grad_mode = false; ///< How it was called.
  };
  Kind kind = Kind::kUndefined;
  int32_t index = 0;
  std::vector<Step> chain;
  bool requires_grad = false;
  int64_t version = 0; ///< Of kOutput: what its counter is at.
  bool leaf = false; ///< requires_grad_() was called on a tensor without one.
  /// Differentiable views: taken before what else in the call used the same
  /// tensor, so that its gradient is added after theirs.
  bool late = false;
  /// An earlier result whose memory and version counter it shares, or -1.
  int32_t shares_version_with = -1;
};

/// Calls the view ops of a chain on `tensor`, above autograd, each in the grad
/// mode in which the call took it.
at::Tensor apply_views(
    const graph::Graph& graph,
    const std::vector<ResultPlan::Step>& chain,
    at::Tensor tensor);

/// Plans every result, sets the graph's outputs and mutations, and ends the
/// forward part. The last `rewritten` results are arguments that were written
/// with a history of the call's: their content is a graph output. Notes in the
/// recorder what can't be planned.
std::vector<ResultPlan> plan_results(
    Recorder& recorder,
    const std::vector<at::Tensor>& results,
    const std::vector<at::Tensor>& arguments,
    size_t rewritten);

} // namespace temper::capture
