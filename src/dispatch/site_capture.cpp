// The tiers in which the user's code runs under capture: traced and shadowed.
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "capture/recorder.h"
#include "capture/shadow.h"
#include "dispatch/call_objects.h"
#include "dispatch/site_impl.h"

namespace temper::dispatch {
namespace {

using graph::kNoValue;

// How the user's code runs under capture: TorchScript children interpret their
// graphs op by op in every call (their optimiser changes the stream of ops from
// the second call on), and autocast casts anew (its cache would make the stream
// depend on what ran before). Without TorchScript, which a trace tells,
// `script` may be false: the optimiser's switch takes longer than an operator.
class CaptureModes {
 public:
  explicit CaptureModes(bool script)
      : cache_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
    if (script) {
      no_optimizer_.emplace(false);
    }
  }
  ~CaptureModes() {
    at::autocast::set_autocast_cache_enabled(cache_);
  }
  CaptureModes(const CaptureModes&) = delete;
  CaptureModes& operator=(const CaptureModes&) = delete;

 private:
  bool cache_;
  std::optional<torch::jit::GraphOptimizerEnabledGuard> no_optimizer_;
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
  if (trace.inner_gradients) {
    return "a backward inside the call leaves gradients, or tensors, behind";
  }
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto& made = graph.ops[i].results;
    if (std::find(made.begin(), made.end(), value) != made.end()) {
      return "a tensor made by " + trace.ops[i].info->name +
          " is kept after the call without being a result";
    }
  }
  return "a tensor made in the call is kept after it";
}

// Some flags are the process's, which other threads may set.
std::string state_change(const Signature& signature) {
  const auto change = signature.global.difference(GlobalState::current());
  return change.empty() ? change
                        : "the call changes the thread's state: " + change;
}

// `results` are those of the code, then the rewritten arguments.
void plan_results(
    Plan& plan,
    const std::vector<at::Tensor>& results,
    const Call& call,
    capture::Recorder& recorder) {
  plan.results = capture::plan_results(
      recorder, results, call.tensors, plan.rewritten.size());
  plan.inference = c10::InferenceMode::is_enabled();
  const at::Tensor* first = nullptr;
  for (size_t i = 0; i < results.size(); ++i) {
    if (plan.results[i].kind != capture::ResultPlan::Kind::kOutput) {
      continue;
    }
    first = first == nullptr ? &results[i] : first;
    plan.inference = first->is_inference();
    if (results[i].is_inference() != first->is_inference()) {
      recorder.fail("some results are inference tensors, others are not");
    }
  }
  const auto& trace = recorder.trace();
  for (const auto& mutation : trace.graph.mutations) {
    const auto& binding = trace.bindings[static_cast<size_t>(mutation.input)];
    if (binding.watched != nullptr && binding.watched->requires_grad() &&
        binding.tensor(call.tensors).grad_fn() != nullptr) {
      recorder.fail("the call writes to a tensor with a history");
    }
  }
}

bool has_late_edge(const at::Tensor& tensor) {
  return tensor.is_leaf() && !tensor.is_view();
}

// Not of plain leaves: their AccumulateGrad, with the sizes of that moment,
// would be made sooner than in eager.
std::vector<torch::autograd::Edge> edges_before(const Call& call) {
  std::vector<torch::autograd::Edge> edges;
  for (const auto& tensor : call.tensors) {
    edges.push_back(
        tensor.defined() && tensor.requires_grad() && !has_late_edge(tensor)
            ? torch::autograd::impl::gradient_edge(tensor)
            : torch::autograd::Edge());
  }
  return edges;
}

std::vector<std::string> names_of(const Call& call) {
  std::vector<std::string> names;
  for (size_t i = 0; i < call.tensors.size(); ++i) {
    names.push_back("argument " + std::to_string(i));
  }
  return names;
}

capture::FindWatched finder(std::shared_ptr<const Snapshot> state) {
  return
      [state = std::move(state)](
          const at::Tensor& tensor) -> std::optional<capture::WatchedTensor> {
        if (auto place = state->find(tensor)) {
          return capture::WatchedTensor{tensor, place->role, place->path};
        }
        if (!capture::is_recordable(tensor)) {
          return std::nullopt;
        }
        auto same = state->find_memory(tensor);
        if (!same) {
          return std::nullopt;
        }
        auto& [watched, place] = *same;
        return capture::WatchedTensor{
            std::move(watched), place.role, std::move(place.path)};
      };
}

} // namespace

// A call that is being traced.
struct Tracing {
  Tracing(const Call& traced, const Signature& signature)
      : Tracing(traced, signature, names_of(traced)) {}

  /// What happened during the call that another thread may have done, so that
  /// it is worth while to look again; empty if nothing.
  std::string disturbance(const Signature& signature) const;
  /// The arguments to which the call has given another history. Completes
  /// `edges` by those of plain leaves.
  std::vector<int32_t> find_rewritten(const Signature& signature);

  const Call& call;
  const uint64_t first_sequence_number;
  std::vector<torch::autograd::Edge> edges; ///< Of the arguments, at its start.
  CallObjects objects;
  std::unique_ptr<capture::Recorder> recorder;

 private:
  Tracing(
      const Call& traced,
      const Signature& signature,
      std::vector<std::string> names);
  bool can_rewrite(const Signature& signature, size_t i) const;
};

Tracing::Tracing(
    const Call& traced,
    const Signature& signature,
    std::vector<std::string> names)
    : call(traced),
      first_sequence_number(at::sequence_number::peek()),
      edges(edges_before(call)),
      objects(call, names, *signature.state),
      recorder(std::make_unique<capture::Recorder>(
          call.tensors,
          std::move(names),
          finder(signature.state))) {}

std::string Tracing::disturbance(const Signature& signature) const {
  if (recorder->memory_touched_elsewhere()) {
    return std::string(capture::kRawAccess) + ", by a thread";
  }
  if (recorder->generator_touched()) {
    return capture::kGeneratorTouched;
  }
  for (auto change :
       {objects.change(), objects.unrecorded_write(recorder->trace())}) {
    if (!change.empty()) {
      return change;
    }
  }
  return state_change(signature);
}

// True iff the call gave argument `i` a history that a plan can give it, too:
// it is no view, whose base would get one, and nothing else lives in its
// memory.
bool Tracing::can_rewrite(const Signature& signature, size_t i) const {
  const auto& tensor = call.tensors[i];
  if (tensor.is_view() || signature.arguments.aliased() ||
      tensor.grad_fn() == nullptr ||
      tensor.grad_fn()->sequence_nr() < first_sequence_number) {
    return false;
  }
  return std::none_of(
      call.tensors.begin(),
      call.tensors.begin() + static_cast<ptrdiff_t>(i),
      [&](const at::Tensor& other) { return other.is_same(tensor); });
}

std::vector<int32_t> Tracing::find_rewritten(const Signature& signature) {
  std::vector<int32_t> rewritten;
  for (size_t i = 0; i < edges.size(); ++i) {
    const auto& tensor = call.tensors[i];
    if (edges[i].is_valid() &&
        !(torch::autograd::impl::gradient_edge(tensor) == edges[i])) {
      if (!can_rewrite(signature, i)) {
        recorder->fail("the call changes the history of an argument");
      }
      rewritten.push_back(static_cast<int32_t>(i));
    }
    if (tensor.defined() && tensor.requires_grad() && has_late_edge(tensor)) {
      edges[i] = torch::autograd::impl::gradient_edge(tensor);
    }
  }
  return rewritten;
}

// Fails the recorder if the call has left something changed that a program
// would not change.
void CallSite::Impl::check_effects(
    const Signature& signature,
    const Call& call,
    capture::Recorder& recorder) const {
  const auto* watched = watch_pointer.load();
  if (!watched->matches(*signature.state)) {
    recorder.fail(
        c10::str(kChangesState, watched->difference(*signature.state)));
  }
  if (!signature.arguments.matches(call.tensors, *signature.state)) {
    recorder.fail("the call changes the metadata of an argument");
  }
}

Result CallSite::Impl::trace(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    UserCode code) {
  if (!signature->arguments.plain()) {
    constexpr const char* kReason =
        "an argument is a sparse, nested, quantized or wrapped tensor";
    give_up(*signature, kReason);
    return run_eager(call, code, kReason);
  }
  std::string paused;
  {
    const std::scoped_lock lock(signature->mutex);
    if (signature->pause > 0) {
      --signature->pause;
      paused = signature->reason;
    }
  }
  if (!paused.empty()) {
    return run_eager(call, code, paused, /*passing=*/true);
  }
  counters.bump(base::Counter::kTraces);
  Tracing tracing(call, *signature);
  Result result;
  {
    const Stopwatch stopwatch(costs, Cost::kTraces);
    const CaptureModes modes(/*script=*/true);
    const capture::InterceptScope scope(*tracing.recorder);
    tracing.recorder->resume();
    try {
      result = code(call.tensors);
    } catch (...) { // It is the user's.
      constexpr const char* kReason = "the code threw in each trace";
      if (!loosened(signature, call, kReason)) {
        retry(*signature, kReason);
      }
      throw;
    }
    TEMPER_LOG(
        kTrace,
        "'",
        name,
        "' was traced: ",
        tracing.recorder->trace().graph.ops.size(),
        " operators in ",
        stopwatch.milliseconds(),
        " ms");
  }
  tracing.recorder->pause();
  finish_trace(signature, call, tracing, result);
  return result;
}

void CallSite::Impl::finish_trace(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    Tracing& tracing,
    const Result& result) {
  auto& recorder = *tracing.recorder;
  const auto& unsupported = recorder.trace().unsupported;
  const auto refuse = [&] {
    if (!loosened(signature, call, unsupported)) {
      give_up(*signature, unsupported);
    }
  };
  if (!unsupported.empty()) {
    refuse();
    return;
  }
  auto why = tracing.disturbance(*signature);
  if (why.empty() && runs_hooks(recorder.trace(), call.tensors)) {
    why = kRunsHooks; // Another call may have none.
  }
  if (!why.empty()) {
    if (!loosened(signature, call, why)) {
      disturbed(*signature, why);
    }
    return;
  }
  check_effects(*signature, call, recorder);
  auto plan = std::make_shared<Plan>();
  plan->rewritten = tracing.find_rewritten(*signature);
  plan->name = name;
  plan->result_structure = result.structure;
  plan->prototype = result.prototype;
  auto results = result.tensors;
  for (const auto argument : plan->rewritten) {
    results.push_back(call.tensors[static_cast<size_t>(argument)]);
  }
  if (unsupported.empty()) {
    plan_results(*plan, results, call, recorder);
  }
  if (!unsupported.empty()) {
    refuse();
    return;
  }
  for (const auto& tensor : results) {
    plan->result_values.push_back(
        tensor.defined() ? recorder.resolve(tensor) : kNoValue);
  }
  if (waits_for_backward(signature, tracing, plan, results)) {
    return;
  }
  if (!unsupported.empty()) {
    give_up(*signature, unsupported);
    return;
  }
  for (const auto value : recorder.ledger().alive_values()) {
    if (!lives_in_result(recorder.trace(), value, plan->result_values)) {
      give_up(*signature, escape_reason(recorder.trace(), value));
      return;
    }
  }
  capture::end_forward(recorder.trace());
  compile(*signature, plan, std::move(recorder.trace()));
}

// True iff a backward through the results may come, which will be recorded. The
// recorder may have failed otherwise.
bool CallSite::Impl::waits_for_backward(
    const std::shared_ptr<Signature>& signature,
    Tracing& tracing,
    const std::shared_ptr<Plan>& plan,
    const std::vector<at::Tensor>& results) {
  // Not only in grad mode: the code may switch it on.
  if (c10::InferenceMode::is_enabled()) {
    return false;
  }
  tracing.recorder->let_go_of_arguments();
  const std::weak_ptr<Impl> weak = weak_from_this();
  const std::weak_ptr<Signature> weak_signature = signature;
  auto record = capture::BackwardRecord::begin(
      tracing.recorder,
      {plan->results,
       results,
       tracing.call.tensors,
       tracing.edges,
       tracing.first_sequence_number},
      plan->autograd,
      [weak, weak_signature, plan](capture::BackwardRecord& done) {
        const auto self = weak.lock();
        const auto of = weak_signature.lock();
        if (self && of) {
          self->finish_backward(of, *plan, done);
        }
      });
  if (!record) {
    return false;
  }
  plan->differentiable = true;
  const std::scoped_lock lock(signature->mutex);
  signature->waiting = std::move(record);
  signature->traced = plan;
  signature->calls_while_waiting = 0;
  go_to(*signature, Tier::kWaiting);
  return true;
}

// The end of a shadowed call that went another way than its trace: everything
// is real from here on.
bool CallSite::Impl::diverged(
    Signature& signature,
    capture::ShadowRun& run,
    const std::string& why,
    bool perhaps_disturbed) {
  // First, since what follows may throw.
  const auto& first = run.materialised() ? run.divergence() : why;
  const auto reason = kDiffers + first;
  TEMPER_LOG(kShadow, "'", name, "' diverged from its trace: ", first);
  if (perhaps_disturbed) {
    disturbed(signature, why);
  } else {
    retry(signature, reason);
  }
  if (!run.materialise(why)) {
    return false;
  }
  const auto not_given = run.give_back();
  TEMPER_CHECK(not_given.empty(), "in '", name, "' ", not_given);
  return true;
}

// Why a shadow run that has come to its end does not prove the trace; empty if
// it does. `disturbance`: another thread may be why.
std::string CallSite::Impl::difference(
    const Signature& signature,
    const Plan& plan,
    const capture::ShadowRun& run,
    const Result& result,
    const capture::GeneratorState& generator,
    bool& disturbance) const {
  if (!run.complete()) {
    return "the code ended before its trace";
  }
  if (result.structure != plan.result_structure ||
      result.tensors.size() + plan.rewritten.size() != plan.results.size()) {
    return "the result has another structure";
  }
  const auto* watched = watch_pointer.load();
  if (!watched->matches(*signature.state)) {
    return "the call changed watched state: " +
        watched->difference(*signature.state);
  }
  for (size_t i = 0; i < result.tensors.size(); ++i) {
    const auto& tensor = result.tensors[i];
    if (!run.is(tensor, plan.result_values[i]) ||
        (tensor.defined() &&
         tensor.requires_grad() != plan.results[i].requires_grad)) {
      return "a result is another tensor";
    }
  }
  disturbance = true;
  if (!(generator == capture::GeneratorState::current())) {
    return capture::kGeneratorTouched;
  }
  const auto change = run.object_change(plan.rewritten);
  return change.empty() ? state_change(signature) : change;
}

// What the user's code holds of a shadow run that has matched, now that its
// results are gone; empty if nothing.
std::string CallSite::Impl::kept_shadow(
    const Call& call,
    const capture::ShadowRun& run,
    const capture::Trace& trace) {
  if (const auto argument = run.kept_argument(); argument >= 0) {
    return "'" + names_of(call)[static_cast<size_t>(argument)] +
        "' is kept after the call";
  }
  const auto alive = run.alive_values();
  return alive.empty() ? "" : escape_reason(trace, alive.front());
}

bool CallSite::Impl::fill_kept(
    const Plan& plan,
    const Call& call,
    capture::ShadowRun& run,
    const capture::GeneratorState& generator,
    const std::string& kept) {
  const auto written = contents_of_mutated(plan, call.tensors);
  const auto put_back = c10::make_scope_exit([&] {
    written.put_back();
    generator.restore();
    run.restore();
  });
  return run.materialise(kept);
}

Result CallSite::Impl::shadow(
    const std::shared_ptr<Signature>& signature,
    const std::shared_ptr<const Plan>& plan,
    const Call& call,
    UserCode code,
    MakeRerun make_rerun) {
  if (runs_hooks(*plan->trace, call.tensors)) {
    return run_eager(call, code, kRunsHooks, /*passing=*/true);
  }
  counters.bump(base::Counter::kShadowRuns);
  std::optional<Stopwatch> stopwatch(std::in_place, costs, Cost::kShadowRuns);
  capture::ShadowRun run(*plan->trace, call.tensors);
  const auto generator = capture::GeneratorState::current();
  constexpr const char* kThrew = "the code threw where its trace did not";
  bool told = false;
  const auto goes_on = [&](const std::string& why, bool disturbance = false) {
    told = true;
    return diverged(*signature, run, why, disturbance);
  };
  // What the code did so far was matching only, or was put back.
  const auto start_again = [&](const std::string& reason) {
    run.restore();
    generator.restore();
    stopwatch.reset();
    if (run.refused_for_generator()) { // Once, or by another thread.
      if (!told) { // The code has swallowed what was to unwind it.
        retry(*signature, kDiffers + reason);
      }
      return run_eager(call, code, kDiffers + reason, /*passing=*/true);
    }
    give_up(*signature, reason);
    return run_eager(call, code, reason, /*passing=*/true);
  };
  Result result;
  try {
    const CaptureModes modes(plan->trace->script);
    const capture::InterceptScope scope(run);
    result = code(run.arguments());
  } catch (const std::exception& error) { // The code may have wrapped it.
    if (!run.materialised() &&
        std::strstr(error.what(), capture::kShadowDataMessage) != nullptr) {
      return start_again(capture::kRawAccess); // Behind the dispatcher.
    }
    if (goes_on(kThrew)) {
      throw;
    }
  } catch (...) {
    if (goes_on(kThrew)) {
      throw;
    }
  }
  if (!run.refused().empty()) {
    return start_again(run.refused());
  }
  bool disturbance = false;
  const auto why = run.materialised()
      ? run.divergence()
      : difference(*signature, *plan, run, result, generator, disturbance);
  if (!why.empty()) {
    if (!goes_on(why, disturbance)) {
      return start_again(run.refused());
    }
    counters.bump_eager(kDiffers + why);
    for (auto& tensor : result.tensors) {
      if (tensor.defined()) {
        tensor = run.original(tensor);
      }
    }
    return result;
  }
  // Matched. Let go of the shadow results with their histories; what is alive
  // then has been kept somewhere.
  result.tensors.clear();
  run.drop_histories(plan->rewritten);
  if (const auto kept = kept_shadow(call, run, *plan->trace); !kept.empty()) {
    if (!fill_kept(*plan, call, run, generator, kept)) {
      return start_again(run.refused());
    }
    stopwatch.reset();
    auto outcome = run_plan_of(signature, plan, call, code, make_rerun);
    give_up(*signature, kept);
    return outcome;
  }
  run.restore();
  stopwatch.reset();
  counters.bump(base::Counter::kAdmissions);
  TEMPER_LOG(kShadow, "'", name, "' matched its trace: admitted");
  {
    const std::scoped_lock lock(signature->mutex);
    // Another thread may have brought another plan, or given up.
    if (signature->plan.load() == plan && signature->tier == Tier::kReady) {
      signature->proved = true;
      signature->tier = Tier::kAdmitted;
    }
  }
  return run_plan_of(signature, plan, call, code, make_rerun);
}

} // namespace temper::dispatch
