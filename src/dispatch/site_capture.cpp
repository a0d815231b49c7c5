// The tiers in which the user's code runs under capture: traced and shadowed.
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "capture/recorder.h"
#include "capture/shadow.h"
#include "dispatch/site_impl.h"

namespace temper::dispatch {
namespace {

using graph::kNoValue;

// How the user's code runs under capture: TorchScript children interpret their
// graphs op by op in every call (their optimiser changes the stream of ops from
// the second call on), and autocast casts anew (its cache would make the stream
// depend on what ran before).
class CaptureModes {
 public:
  CaptureModes() : cache_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~CaptureModes() {
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  CaptureModes(const CaptureModes&) = delete;
  CaptureModes& operator=(const CaptureModes&) = delete;

 private:
  bool cache_;
  torch::jit::GraphOptimizerEnabledGuard no_optimizer_{false};
};

// Storages that the results live in.
bool lives_in_result(
    const capture::Trace& trace,
    graph::ValueId value,
    const std::vector<graph::ValueId>& results) {
  return std::any_of(results.begin(), results.end(), [&](auto result) {
    return result != kNoValue &&
        trace.values[static_cast<size_t>(result)].storage ==
        trace.values[static_cast<size_t>(value)].storage;
  });
}

std::string escape_reason(const capture::Trace& trace, graph::ValueId value) {
  const auto& graph = trace.graph;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto& made = graph.ops[i].results;
    if (std::find(made.begin(), made.end(), value) != made.end()) {
      return "a tensor made by " + trace.ops[i].info->name +
          " is kept after the call without being a result";
    }
  }
  return "a tensor made in the call is kept after it";
}

std::vector<std::string> names_of(const Call& call) {
  if (call.tensor_names != nullptr && !call.tensor_names->empty()) {
    return *call.tensor_names;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    names.push_back("argument " + std::to_string(i));
  }
  return names;
}

} // namespace

capture::FindWatched CallSite::Impl::finder(
    std::shared_ptr<const Snapshot> state) const {
  return
      [state = std::move(state)](
          const at::Tensor& tensor) -> std::optional<capture::WatchedTensor> {
        if (auto place = state->find(tensor)) {
          return capture::WatchedTensor{tensor, place->role, place->path};
        }
        return std::nullopt;
      };
}

Outcome CallSite::Impl::trace(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    UserCode code) {
  for (const auto& tensor : call.tensors) {
    if (tensor.defined() &&
        (tensor.layout() != c10::kStrided || tensor.is_nested() ||
         !tensor.unsafeGetTensorImpl()->has_storage())) {
      give_up(*signature, "an argument is not a strided tensor");
      return run_eager(call, code, "an argument is not a strided tensor");
    }
  }
  counters.bump(base::Counter::kTraces);
  const auto first_sequence_number = at::sequence_number::peek();
  // Not of plain leaves: their AccumulateGrad, with the sizes of that moment,
  // would be made sooner than in eager.
  const auto late_edge = [](const at::Tensor& tensor) {
    return tensor.is_leaf() && !tensor.is_view();
  };
  std::vector<torch::autograd::Edge> edges;
  for (const auto& tensor : call.tensors) {
    edges.push_back(
        tensor.defined() && tensor.requires_grad() && !late_edge(tensor)
            ? torch::autograd::impl::gradient_edge(tensor)
            : torch::autograd::Edge());
  }
  auto recorder = std::make_unique<capture::Recorder>(
      call.tensors, names_of(call), finder(signature->state));
  Result result;
  {
    const Stopwatch stopwatch(costs, Cost::kTraces);
    const CaptureModes modes;
    const capture::InterceptScope scope(*recorder);
    result = code(call.tensors); // What it throws is the user's: passed on.
    TEMPER_LOG(
        kTrace,
        "'",
        name,
        "' was traced: ",
        recorder->trace().graph.ops.size(),
        " operators in ",
        stopwatch.milliseconds(),
        " ms");
  }
  if (recorder->generator_touched()) {
    // Perhaps another thread's doing: look again.
    retry(
        *signature,
        "random numbers were drawn or seeded outside of tensor ops");
    return result;
  }
  const auto* watched = watch_pointer.load();
  if (!watched->matches(*signature->state)) {
    recorder->fail(
        "the call changes watched state: " +
        watched->difference(*signature->state));
  }
  if (!signature->arguments.matches(call.tensors, *signature->state)) {
    recorder->fail("the call changes the metadata of an argument");
  }
  for (size_t i = 0; i < edges.size(); ++i) {
    if (edges[i].is_valid() &&
        !(torch::autograd::impl::gradient_edge(call.tensors[i]) == edges[i])) {
      recorder->fail("the call changes the history of an argument");
    }
    const auto& tensor = call.tensors[i];
    if (tensor.defined() && tensor.requires_grad() && late_edge(tensor)) {
      edges[i] = torch::autograd::impl::gradient_edge(tensor);
    }
  }
  auto plan = std::make_shared<Plan>();
  plan->name = name;
  plan->result_structure = result.structure;
  plan->prototype = result.prototype;
  if (!recorder->failed()) {
    plan->results =
        capture::plan_results(*recorder, result.tensors, call.tensors);
  }
  auto& captured = recorder->trace();
  for (const auto& mutation : captured.graph.mutations) {
    const auto& binding =
        captured.bindings[static_cast<size_t>(mutation.input)];
    if (binding.watched != nullptr && binding.watched->requires_grad() &&
        at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::
                       reclaim_copy(binding.watched))
                .grad_fn() != nullptr) {
      recorder->fail("the call writes to a tensor with a history");
    }
  }
  if (recorder->failed()) {
    give_up(*signature, captured.unsupported);
    return result;
  }
  auto& values = plan->result_values;
  for (const auto& tensor : result.tensors) {
    values.push_back(tensor.defined() ? recorder->resolve(tensor) : kNoValue);
  }
  std::shared_ptr<capture::BackwardRecord> record;
  // Not only in grad mode: the code may switch it on.
  if (!c10::InferenceMode::is_enabled()) {
    const std::weak_ptr<Impl> weak = weak_from_this();
    const std::weak_ptr<Signature> weak_signature = signature;
    record = capture::BackwardRecord::begin(
        recorder,
        plan->results,
        result.tensors,
        call.tensors,
        edges,
        first_sequence_number,
        plan->autograd,
        [weak, weak_signature, plan](capture::BackwardRecord& done) {
          const auto self = weak.lock();
          const auto of = weak_signature.lock();
          if (self && of) {
            self->finish_backward(of, *plan, done);
          }
        });
  }
  if (record) {
    plan->differentiable = true;
    const std::scoped_lock lock(signature->mutex);
    signature->waiting = std::move(record);
    signature->traced = plan;
    signature->calls_while_waiting = 0;
    signature->tier = Tier::kWaiting;
    return result;
  }
  if (recorder->failed()) {
    give_up(*signature, recorder->trace().unsupported);
    return result;
  }
  for (const auto value : recorder->ledger().alive_values()) {
    if (!lives_in_result(captured, value, values)) {
      give_up(*signature, escape_reason(captured, value));
      return result;
    }
  }
  capture::end_forward(captured);
  compile(signature, plan, std::move(captured));
  return result;
}

Outcome CallSite::Impl::shadow(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    UserCode code,
    MakeRerun make_rerun) {
  const auto plan = signature->plan.load();
  const auto& trace = *plan->trace;
  counters.bump(base::Counter::kShadowRuns);
  std::optional<Stopwatch> stopwatch(std::in_place, costs, Cost::kShadowRuns);
  capture::ShadowRun run(trace, call.tensors, finder(signature->state));
  const auto generator = capture::GeneratorState::current();
  Result result;
  try {
    const CaptureModes modes;
    const capture::InterceptScope scope(run);
    result = code(run.arguments());
  } catch (const c10::Error& error) {
    if (run.materialised() ||
        std::strstr(error.what(), capture::kShadowDataMessage) == nullptr) {
      run.materialise("the code threw");
      retry(*signature, "the code threw where its trace did not");
      throw;
    }
    // The code reads data behind the dispatcher. What it did so far was
    // matching only, so it can start again.
    run.restore();
    stopwatch.reset();
    const std::string reason =
        "the data of a tensor is read outside of tensor ops (data_ptr, an "
        "accessor, an Eigen map)";
    give_up(*signature, reason);
    return run_eager(call, code, reason, /*passing=*/true);
  } catch (...) {
    run.materialise("the code threw");
    retry(*signature, "the code threw where its trace did not");
    throw;
  }
  std::string why;
  const auto* watched = watch_pointer.load();
  if (!run.materialised()) {
    if (!run.complete()) {
      why = "the code ended before its trace";
    } else if (
        result.structure != plan->result_structure ||
        result.tensors.size() != plan->results.size()) {
      why = "the result has another structure";
    } else if (!watched->matches(*signature->state)) {
      why = "the call changed watched state: " +
          watched->difference(*signature->state);
    } else if (!(generator == capture::GeneratorState::current())) {
      why = "random numbers were drawn or seeded outside of tensor ops";
    } else {
      for (size_t i = 0; i < result.tensors.size() && why.empty(); ++i) {
        const auto& tensor = result.tensors[i];
        if (!run.is(tensor, plan->result_values[i]) ||
            (tensor.defined() &&
             tensor.requires_grad() != plan->results[i].requires_grad)) {
          why = "a result is another tensor";
        }
      }
    }
    if (!why.empty()) {
      run.materialise(why);
    }
  }
  if (run.materialised()) {
    TEMPER_LOG(
        kShadow, "'", name, "' diverged from its trace: ", run.divergence());
    for (auto& tensor : result.tensors) {
      if (tensor.defined()) {
        tensor = run.original(tensor);
      }
    }
    const auto reason = "differs from call to call: " + run.divergence();
    counters.bump_eager(reason);
    retry(*signature, reason);
    return result;
  }
  // Matched. Let go of the shadow results with their histories; what is alive
  // then has been kept somewhere.
  result.tensors.clear();
  const auto kept = run.alive_values();
  if (!kept.empty()) {
    // Give what was kept its data, without the call's effects happening twice.
    const auto reason = escape_reason(trace, kept.front());
    std::vector<std::pair<at::Tensor, at::Tensor>> written;
    for (const auto input : plan->mutated) {
      auto tensor = input_tensor(*plan, input, call.tensors);
      written.emplace_back(tensor, tensor.detach().clone());
    }
    run.materialise(reason);
    {
      const at::AutoDispatchBelowADInplaceOrView below;
      for (auto& [tensor, content] : written) {
        tensor.copy_(content);
      }
    }
    generator.restore();
    run.restore();
    stopwatch.reset();
    auto outcome = run_plan_of(signature, plan, call, make_rerun);
    give_up(*signature, reason);
    return outcome;
  }
  run.restore();
  stopwatch.reset();
  counters.bump(base::Counter::kAdmissions);
  TEMPER_LOG(kShadow, "'", name, "' matched its trace: admitted");
  {
    const std::scoped_lock lock(signature->mutex);
    // Another thread may have brought another plan.
    if (signature->plan.load() == plan && signature->tier == Tier::kReady) {
      signature->proved = true;
      signature->tier = Tier::kAdmitted;
    }
  }
  return run_plan_of(signature, plan, call, make_rerun);
}

} // namespace temper::dispatch
