// From a trace to a plan, and from tier to tier.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "codegen/backend.h"
#include "dispatch/site_impl.h"
#include "graph/skeleton.h"
#include "passes/unsupported.h"
#include "runtime/artifact_store.h"

namespace temper::dispatch {
namespace {

// Traces and shadow runs that may come to nothing before a signature is left
// eager: other threads can disturb one.
constexpr int kMaxRetries = 3;
// Backwards of another kind than the plan's before a signature is left eager.
constexpr int kMaxUnknownBackwards = 6;

} // namespace

void CallSite::Impl::give_up(Signature& signature, const std::string& reason) {
  {
    const std::scoped_lock lock(signature.mutex);
    signature.reason = reason;
    signature.waiting.reset();
    signature.forward_plan.reset();
  }
  signature.tier.store(Tier::kEager, std::memory_order_release);
  TEMPER_LOG(kEager, "'", name, "' runs eagerly: ", reason);
}

void CallSite::Impl::retry(Signature& signature, const std::string& reason) {
  int retries = 0;
  {
    const std::scoped_lock lock(signature.mutex);
    retries = ++signature.retries;
  }
  if (retries >= kMaxRetries) {
    give_up(signature, reason);
    return;
  }
  signature.tier.store(Tier::kNew, std::memory_order_release);
}

void CallSite::Impl::compile(
    const std::shared_ptr<Signature>& signature,
    std::shared_ptr<Plan> plan,
    capture::Trace trace) {
  std::string backend;
  int64_t max_graphs = 0;
  {
    const std::scoped_lock lock(mutex);
    backend = options.backend;
    max_graphs = options.max_graphs;
  }
  if (backend == "eager") {
    give_up(*signature, "the backend is \"eager\": graphs are only recorded");
    return;
  }
  auto& graph = trace.graph;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].role != graph::Role::kTangent) {
      plan->forward_inputs.push_back(static_cast<int32_t>(i));
    }
  }
  for (const auto& mutation : graph.mutations) {
    plan->mutated.push_back(mutation.input);
  }
  for (const auto& segment : graph.segments) {
    std::vector<int32_t> outputs;
    for (const auto tangent : segment.tangents) {
      size_t ordinal = 0;
      for (int32_t i = 0; i < tangent; ++i) {
        ordinal +=
            graph.inputs[static_cast<size_t>(i)].role == graph::Role::kTangent;
      }
      outputs.push_back(graph.tangent_outputs[ordinal]);
    }
    plan->tangent_outputs.push_back(std::move(outputs));
  }
  auto skeleton = graph::skeleton(graph);
  bool over_limit = false;
  {
    const std::scoped_lock lock(mutex);
    if (!graphs.contains(skeleton.hash)) {
      if (static_cast<int64_t>(graphs.size()) >= max_graphs) {
        if (!said_limit) {
          said_limit = true;
          base::warn(c10::str(
              "'",
              name,
              "' has reached its limit of ",
              max_graphs,
              " graphs; calls that need others run eagerly. Raise it with "
              "CompileOptions().max_graphs(n)."));
        }
        over_limit = true;
      }
      if (!over_limit) {
        graphs.insert(skeleton.hash);
      }
    }
  }
  if (over_limit) {
    give_up(*signature, "limit of graphs reached");
    return;
  }
  try {
    plan->artifact = runtime::default_store().get(skeleton, backend, [&] {
      const auto make = codegen::find_backend(backend);
      TEMPER_CHECK(
          static_cast<bool>(make), "there is no backend \"", backend, "\"");
      counters.bump(base::Counter::kGraphs);
      counters.bump(base::Counter::kCompiles);
      return make(graph, codegen::BackendOptions());
    });
  } catch (const passes::Unsupported& why) {
    give_up(*signature, why.what());
    return;
  } catch (const std::exception& error) {
    // The user's call, or backward, has its eager result: it goes on.
    base::warn(c10::str(
        "'",
        name,
        "' could not be compiled and runs eagerly; please report this: ",
        error.what()));
    give_up(*signature, "an internal error while compiling");
    return;
  }
  plan->slots = std::move(skeleton.slots);
  plan->trace = std::make_shared<const capture::Trace>(std::move(trace));
  {
    const std::scoped_lock lock(signature->mutex);
    signature->waiting.reset();
    signature->forward_plan.reset();
  }
  signature->plan.store(std::move(plan));
  signature->tier.store(Tier::kReady, std::memory_order_release);
}

void CallSite::Impl::finish_forward(
    const std::shared_ptr<Signature>& signature,
    std::shared_ptr<Plan> plan,
    capture::Trace trace) {
  compile(signature, std::move(plan), std::move(trace));
}

void CallSite::Impl::finish_backward(
    const std::shared_ptr<Signature>& signature,
    std::shared_ptr<Plan> plan,
    capture::BackwardRecord& record) {
  // Runs inside the user's backward: nothing may come out of here.
  try {
    if (record.failed()) {
      give_up(*signature, record.reason());
      return;
    }
    plan->has_backward = true;
    plan->pattern = record.pattern();
    plan->step_segments = record.step_segments();
    compile(signature, std::move(plan), record.take_trace());
  } catch (const std::exception& error) {
    base::warn(c10::str(
        "'",
        name,
        "' could not be compiled and runs eagerly; please report this: ",
        error.what()));
    give_up(*signature, "an internal error while compiling");
  }
}

void CallSite::Impl::report_backward(
    const std::shared_ptr<Signature>& signature,
    const std::string& reason) {
  counters.bump_eager(
      reason.empty() ? "a backward of a kind not seen before" : reason);
  if (!reason.empty()) {
    give_up(*signature, reason);
    return;
  }
  {
    const std::scoped_lock lock(signature->mutex);
    if (++signature->unknown_backwards < kMaxUnknownBackwards) {
      signature->tier.store(Tier::kNew, std::memory_order_release);
      return;
    }
  }
  give_up(*signature, "its backward differs from call to call");
}

} // namespace temper::dispatch
