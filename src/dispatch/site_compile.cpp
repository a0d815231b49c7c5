// From a trace to a plan, and from tier to tier.
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "codegen/backend.h"
#include "dispatch/site_impl.h"
#include "graph/equal.h"
#include "graph/skeleton.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"
#include "passes/unsupported.h"
#include "runtime/artifact_store.h"

namespace temper::dispatch {
namespace {

// Traces and shadow runs that may come to nothing before a signature is left
// eager: other threads can disturb one.
constexpr int kMaxRetries = 3;
// Kinds of backward that a plan learns, and backwards that may come unknown,
// before its signature is left eager.
constexpr size_t kMaxBackwards = 8;
constexpr int kMaxUnknownBackwards = 16;
constexpr const char* kUnlikeBackwards =
    "its backward differs from call to call";

// True iff a second run of the call, from the content that the first has left
// in this input's memory, would not compute what the first did.
bool is_changed_for_a_rerun(const capture::Trace& trace, int32_t input) {
  const auto& raw = trace.graph;
  const auto value = raw.inputs[static_cast<size_t>(input)].value;
  const auto storage = raw.values[static_cast<size_t>(value)].storage;
  bool has_read = false;
  bool accumulates = false;
  for (int32_t i = 0; i < raw.num_forward_ops; ++i) {
    const auto& op = raw.ops[static_cast<size_t>(i)];
    if (trace.ops[static_cast<size_t>(i)].view) {
      continue; // Looks at no data.
    }
    const auto is_here = [&](graph::ValueId id) {
      return id != graph::kNoValue &&
          raw.values[static_cast<size_t>(id)].storage == storage;
    };
    bool reads = false;
    bool writes = false;
    for (size_t k = 0; k < op.operands.size(); ++k) {
      const auto& operand = op.operands[k];
      const bool here = is_here(operand.value) ||
          std::any_of(operand.values.begin(), operand.values.end(), is_here);
      const bool written =
          std::any_of(op.writes.begin(), op.writes.end(), [&](const auto& w) {
            return static_cast<size_t>(w.operand) == k;
          });
      reads = reads || (here && !written);
      writes = writes || (here && written);
    }
    if (writes) {
      const auto& info = ops::info(op.op);
      const bool floating = c10::isFloatingType(
          raw.values[static_cast<size_t>(value)].type.dtype);
      if (has_read || reads) {
        return true;
      }
      if (info.old_content != ops::OldContent::kUnused) {
        // Its gradient may need the content from before. Running statistics,
        // which no schema declares, don't take part.
        if (floating && !info.schema_writes.empty() &&
            info.old_content == ops::OldContent::kRead) {
          return true;
        }
        accumulates = true;
      }
    }
    has_read = has_read || reads;
  }
  return accumulates && has_read;
}

} // namespace

void go_to(Signature& signature, Tier tier) {
  if (signature.tier != Tier::kEager) {
    signature.tier.store(tier, std::memory_order_release);
  }
}

void CallSite::Impl::give_up(Signature& signature, const std::string& reason) {
  {
    const std::scoped_lock lock(signature.mutex);
    signature.reason = reason;
    signature.waiting.reset();
    signature.traced.reset();
    signature.tier.store(Tier::kEager, std::memory_order_release);
  }
  TEMPER_LOG(kEager, "'", name, "' runs eagerly: ", reason);
}

void CallSite::Impl::disturbed(
    Signature& signature,
    const std::string& reason) {
  constexpr int kMostDoublings = 10;
  const std::scoped_lock lock(signature.mutex);
  signature.reason = reason;
  signature.proved = false;
  ++signature.doubts;
  const auto doublings = std::min(signature.disturbances++, kMostDoublings);
  signature.pause = (int64_t{1} << doublings) - 1;
  go_to(signature, Tier::kNew);
  TEMPER_LOG(
      kEager,
      "'",
      name,
      signature.pause == 0
          ? std::string("' is traced again: ")
          : c10::str("' is traced again after ", signature.pause, " calls: "),
      reason);
}

bool CallSite::Impl::loosened(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    const std::string& reason) {
  if (watch_pointer.load()->matches(*signature->state)) {
    return false;
  }
  {
    const std::scoped_lock lock(signature->mutex); // Another call may have it.
    signature->reason = reason;
    signature->tier.store(Tier::kEager, std::memory_order_release);
  }
  const std::scoped_lock lock(mutex);
  loosen(signature, call, reason);
  return true;
}

void CallSite::Impl::retry(Signature& signature, const std::string& reason) {
  {
    const std::scoped_lock lock(signature.mutex);
    signature.proved = false;
    ++signature.doubts;
    if (++signature.retries < kMaxRetries) {
      go_to(signature, Tier::kNew);
      return;
    }
  }
  give_up(signature, reason);
}

void CallSite::Impl::say_limit(int64_t limit, const char* rest) {
  if (!said_limit) {
    said_limit = true;
    base::warn(c10::str("'", name, "' has reached its limit of ", limit, rest));
  }
}

bool CallSite::Impl::admits_graph(const base::Hash128& skeleton) {
  const std::scoped_lock lock(mutex);
  if (graphs.contains(skeleton)) {
    return true;
  }
  if (static_cast<int64_t>(graphs.size()) < options.max_graphs) {
    graphs.insert(skeleton);
    return true;
  }
  say_limit(
      options.max_graphs,
      " graphs; calls that need others run eagerly. Raise it with "
      "CompileOptions().max_graphs(n).");
  return false;
}

std::string CallSite::Impl::complete(Plan& plan, capture::Trace trace) {
  std::string backend;
  codegen::BackendOptions backend_options;
  {
    const std::scoped_lock lock(mutex);
    backend = options.backend;
    backend_options.numerics = options.numerics;
    backend_options.freeze_weights = options.freeze_weights;
  }
  if (backend == "eager") {
    return "the backend is \"eager\": graphs are only recorded";
  }
  auto& graph = trace.graph;
  plan.forward_inputs.clear();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].role != graph::Role::kTangent) {
      plan.forward_inputs.push_back(static_cast<int32_t>(i));
    }
  }
  plan.mutated.clear();
  plan.versioned.clear();
  plan.changed_for_a_rerun.clear();
  for (const auto& mutation : graph.mutations) {
    plan.mutated.push_back(mutation.input);
    if (is_changed_for_a_rerun(trace, mutation.input)) {
      plan.changed_for_a_rerun.push_back(mutation.input);
    }
  }
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    if (trace.bindings[i].version_steps > 0) {
      plan.versioned.push_back(static_cast<int32_t>(i));
    }
  }
  auto skeleton = graph::skeleton(graph);
  if (!admits_graph(skeleton.hash)) {
    return "limit of graphs reached";
  }
  // All that the artifact depends on.
  const auto variant = c10::str(
      backend,
      '/',
      codegen::name_of(backend_options.numerics),
      backend_options.freeze_weights ? "/frozen" : "");
  plan.artifact =
      runtime::default_store().get(skeleton, variant, [&](bool is_new) {
        const auto make = codegen::find_backend(backend);
        TEMPER_CHECK(
            static_cast<bool>(make), "there is no backend \"", backend, "\"");
        if (is_new) {
          counters.bump(base::Counter::kGraphs);
        }
        counters.bump(base::Counter::kCompiles);
        const Stopwatch stopwatch(costs, Cost::kCompiles);
        return make(graph, backend_options);
      });
  plan.can_rerun = plan.mutated.empty() &&
      std::none_of(graph.ops.begin(),
                   graph.ops.begin() + graph.num_forward_ops,
                   [](const graph::Op& op) { return ops::info(op.op).impure; });
  plan.expects_layouts =
      std::any_of(graph.ops.begin(), graph.ops.end(), [](const graph::Op& op) {
        return op.op == ops::expect_layout();
      });
  plan.slots = std::move(skeleton.slots);
  plan.views.clear();
  for (size_t i = 0; i < plan.results.size(); ++i) {
    if (!plan.results[i].chain.empty()) {
      plan.views.push_back(i);
    }
  }
  std::stable_sort(
      plan.views.begin(), plan.views.end(), [&](size_t a, size_t b) {
        return plan.results[a].chain.back().op <
            plan.results[b].chain.back().op;
      });
  if (plan.differentiable) {
    plan.chain =
        make_chain(graph, plan.autograd, plan.backwards, *plan.artifact);
    plan.readers.clear();
    for (const auto& backward : plan.backwards) {
      auto& readers = plan.readers.emplace_back(backward.visited);
      for (size_t node = 0; node < readers.size(); ++node) {
        readers[node] = readers[node] && plan.is_reader(node);
      }
    }
  }
  plan.trace = std::make_shared<const capture::Trace>(std::move(trace));
  return "";
}

void CallSite::Impl::compile_failed(
    Signature& signature,
    const std::exception& error) {
  base::warn(c10::str(
      "'",
      name,
      "' could not be compiled and runs eagerly; please report this: ",
      error.what()));
  give_up(signature, "an internal error while compiling");
}

void CallSite::Impl::compile(
    Signature& signature,
    std::shared_ptr<Plan> plan,
    capture::Trace trace,
    int64_t proved_at) {
  std::string reason;
  try {
    reason = complete(*plan, std::move(trace));
  } catch (const passes::Unsupported& why) {
    reason = why.what();
  } catch (const std::exception& error) {
    // The user's call, or backward, has its eager result: it goes on.
    compile_failed(signature, error);
    return;
  }
  if (!reason.empty()) {
    give_up(signature, reason);
    return;
  }
  const std::scoped_lock lock(signature.mutex);
  signature.proved = proved_at == signature.doubts;
  if (!signature.proved) {
    go_to(signature, Tier::kReady); // See `Signature::admitted`.
  }
  signature.plan.store(std::move(plan));
  if (signature.proved) {
    go_to(signature, Tier::kAdmitted);
  }
}

void CallSite::Impl::finish_backward(
    const std::shared_ptr<Signature>& signature,
    const Plan& traced,
    capture::BackwardRecord& record) {
  // Runs inside the user's backward: nothing may come out of here.
  try {
    if (record.failed()) {
      give_up(*signature, record.reason());
      return;
    }
    auto backward = record.last();
    const auto before = signature->plan.load();
    const bool extends = before && before->differentiable &&
        before->autograd == traced.autograd &&
        capture::same_forward(*before->trace, record.trace());
    const auto& known =
        extends ? before->backwards : std::vector<capture::RecordedBackward>();
    auto proved_at = kUnproved;
    const bool is_known =
        std::any_of(known.begin(), known.end(), [&](const auto& other) {
          return other.pattern == backward.pattern;
        });
    if (!is_known && known.size() >= kMaxBackwards) {
      give_up(*signature, kUnlikeBackwards);
      return;
    }
    {
      const std::scoped_lock lock(signature->mutex);
      if (signature->tier == Tier::kEager) {
        return;
      }
      if (is_known && signature->proved && signature->wants_backward) {
        // Another one may follow; else the next call is traced, too, though
        // results of this one are still alive.
        signature->calls_while_waiting = Signature::kPatience;
        // Of several calls that go into one backward another may have it, and
        // again the next time.
        if (signature->unknown_in_task == record.task()) {
          signature->calls_to_skip = signature->traces_for_backward;
        }
        return;
      }
      signature->waiting.reset();
      signature->traced.reset();
      if (is_known) {
        go_to(*signature, signature->proved ? Tier::kAdmitted : Tier::kReady);
        return;
      }
      if (signature->proved && extends) {
        proved_at = signature->doubts;
      }
      signature->wants_backward = false;
      signature->traces_for_backward = 0;
      signature->calls_to_skip = 0;
    }
    auto plan = std::make_shared<Plan>(extends ? *before : traced);
    auto trace =
        extends ? *before->trace : capture::forward_part(record.trace());
    const auto first_op = trace.graph.ops.size();
    if (!capture::append_backward(trace, record.trace(), backward)) {
      give_up(
          *signature,
          "its backward writes to what the forward has made, or reads what "
          "another backward has made");
      return;
    }
    TEMPER_LOG(
        kTrace,
        "'",
        name,
        "': its backward was recorded: ",
        trace.graph.ops.size() - first_op,
        " operators");
    if (backward.user_code && !prove_backward(*signature, record)) {
      return;
    }
    plan->backwards.push_back(std::move(backward));
    compile(*signature, std::move(plan), std::move(trace), proved_at);
  } catch (const std::exception& error) {
    compile_failed(*signature, error);
  }
}

// What a custom autograd function does in its backward may depend on more than
// operators show (data that it reads, a counter). So the same must have been
// recorded in two calls; in one the data would be the same.
bool CallSite::Impl::prove_backward(
    Signature& signature,
    const capture::BackwardRecord& record) {
  // Alone: which others the plan has makes no difference.
  auto trace = capture::forward_part(record.trace());
  auto backward = record.last();
  TEMPER_INTERNAL(capture::append_backward(trace, record.trace(), backward));
  const auto call = record.weak_from_this();
  const auto& pattern = record.last().pattern;
  {
    const std::scoped_lock lock(signature.mutex);
    auto& unproved = signature.unproved;
    auto known =
        std::find_if(unproved.begin(), unproved.end(), [&](const auto& other) {
          return other.pattern == pattern;
        });
    if (known == unproved.end()) {
      known = unproved.insert(known, {pattern, {}, nullptr});
    }
    const bool other_call =
        known->call.owner_before(call) || call.owner_before(known->call);
    if (other_call) {
      if (known->trace && graph::equal(known->trace->graph, trace.graph)) {
        unproved.erase(known);
        return true;
      }
      known->differed += known->trace ? 1 : 0;
      known->call = call;
      known->trace = std::make_shared<const capture::Trace>(std::move(trace));
    }
    if (known->differed < kMaxRetries) {
      signature.wants_backward = true;
      go_to(signature, Tier::kNew);
      return false;
    }
  }
  give_up(
      signature,
      "the backward of a custom autograd function differs from call to call");
  return false;
}

void CallSite::Impl::report_backward(
    Signature& signature,
    const Plan& plan,
    const std::string& reason) {
  counters.bump_eager(
      reason.empty() ? "a backward of a kind not seen before" : reason);
  if (!reason.empty()) {
    give_up(signature, reason);
    return;
  }
  {
    const std::scoped_lock lock(signature.mutex);
    signature.unknown_in_task = torch::autograd::get_current_graph_task_id();
    // Of many calls before one backward (an unrolled cell) each comes here: the
    // first one counts.
    if (signature.wants_backward || signature.plan.load().get() != &plan) {
      return;
    }
    if (++signature.unknown_backwards <= kMaxUnknownBackwards) {
      signature.wants_backward = true;
      if (signature.tier != Tier::kWaiting) {
        go_to(signature, Tier::kNew);
      }
      return;
    }
  }
  give_up(signature, kUnlikeBackwards);
}

} // namespace temper::dispatch
