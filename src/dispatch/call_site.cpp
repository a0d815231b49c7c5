// A call site: finding the signature of a call and running its tier.
#include "dispatch/call_site.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "capture/interceptor.h"
#include "dispatch/backward_rerun.h"
#include "dispatch/site_impl.h"
#include "ops/synthetic.h"

namespace temper::dispatch {

CallSite::Impl::Impl(
    std::string site_name,
    SiteOptions site_options,
    std::function<void(Watch&)> build)
    : name(std::move(site_name)),
      build_watch(std::move(build)),
      index(std::make_shared<const Index>()),
      options(std::move(site_options)) {}

std::shared_ptr<Signature> CallSite::Impl::find(
    const GlobalState& global,
    const Call& call) {
  const auto* watched = watch_pointer.load(std::memory_order_acquire);
  if (watched == nullptr) {
    return nullptr;
  }
  const auto now = index.load(std::memory_order_acquire);
  const auto fits = [&](const Signature& signature) {
    return signature.structure == call.structure &&
        signature.arguments.matches(call.tensors, *signature.state);
  };
  const auto count = now->groups.size();
  const auto first = hint.load(std::memory_order_relaxed);
  for (size_t k = 0; k < count; ++k) {
    // The group that matched last is the likeliest one.
    const auto g = k == 0 ? std::min(first, count - 1)
                          : (k - 1 < std::min(first, count - 1) ? k - 1 : k);
    const auto& group = now->groups[g];
    if (!(group.global == global) || !watched->matches(*group.state)) {
      continue;
    }
    for (const auto& signature : group.signatures) {
      if (fits(*signature)) {
        if (g != first) {
          hint.store(g, std::memory_order_relaxed);
        }
        return signature;
      }
    }
  }
  for (const auto& signature : now->loose) {
    if (signature->global == global && watched->matches(*signature->state) &&
        fits(*signature)) {
      return signature;
    }
  }
  return nullptr;
}

void CallSite::Impl::rebuild_index() {
  auto next = std::make_shared<Index>();
  for (const auto& signature : signatures) {
    if (signature->loose) {
      next->loose.push_back(signature);
      continue;
    }
    auto group = std::find_if(
        next->groups.begin(), next->groups.end(), [&](const auto& g) {
          return g.global == signature->global && g.state == signature->state;
        });
    if (group == next->groups.end()) {
      next->groups.push_back({signature->global, signature->state, {}});
      group = std::prev(next->groups.end());
    }
    group->signatures.push_back(signature);
  }
  index.store(std::move(next), std::memory_order_release);
}

std::shared_ptr<Signature> CallSite::Impl::add(
    const GlobalState& global,
    const Call& call) {
  const std::scoped_lock lock(mutex);
  if (!watch) {
    auto built = std::make_shared<Watch>();
    build_watch(*built);
    watch = std::move(built);
    watch_pointer.store(watch.get(), std::memory_order_release);
  }
  // Another thread may have added it; its state may be one we know.
  std::shared_ptr<const Snapshot> state;
  for (const auto& signature : signatures) {
    if (signature->loose || !watch->matches(*signature->state)) {
      continue;
    }
    state = signature->state;
    if (signature->global == global && signature->structure == call.structure &&
        signature->arguments.matches(call.tensors, *state)) {
      return signature;
    }
  }
  const auto is_full = [&] {
    return static_cast<int64_t>(signatures.size()) >= options.max_signatures;
  };
  if (is_full()) {
    std::erase_if(signatures, [](const auto& signature) {
      return signature->state->is_gone();
    });
  }
  if (is_full()) {
    say_limit(
        options.max_signatures,
        " signatures; calls with new ones run eagerly. Raise it with "
        "CompileOptions().max_signatures(n) or make sizes and fields vary "
        "less.");
    TEMPER_LOG(
        kEager, "'", name, "' runs eagerly: limit of signatures reached");
    return nullptr;
  }
  if (base::log_on(base::Topic::kGuard) && !signatures.empty() &&
      !signatures.back()->loose) {
    const auto& last = *signatures.back();
    auto difference = last.global.difference(global);
    if (difference.empty()) {
      difference = watch->difference(*last.state);
    }
    if (difference.empty()) {
      difference = last.arguments.difference(call.tensors, *last.state);
    }
    if (difference.empty()) {
      difference = "an argument that is no tensor has another value";
    }
    TEMPER_LOG(kGuard, "'", name, "' has a new signature: ", difference);
  }
  if (!state) {
    state = watch->take();
  }
  auto signature = std::make_shared<Signature>(global, state, call);
  if (!state->unguardable().empty()) {
    return loosen(signature, call, state->unguardable());
  }
  signatures.push_back(signature);
  rebuild_index();
  return signature;
}

std::shared_ptr<Signature> CallSite::Impl::loosen(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    const std::string& reason) {
  // Calls between traces, at most: what changes the state once, or up to some
  // day, is compiled some time later.
  constexpr int64_t kMaxPatience = 256;
  const auto erase = [&](const Signature* one) {
    std::erase_if(
        signatures, [&](const auto& other) { return other.get() == one; });
  };
  erase(signature.get());
  const auto like =
      std::find_if(signatures.begin(), signatures.end(), [&](const auto& one) {
        return one->loose && one->global == signature->global &&
            one->structure == signature->structure &&
            one->arguments.matches(call.tensors, *one->state);
      });
  const auto before = like == signatures.end() ? nullptr : *like;
  auto next = std::make_shared<Signature>(
      signature->global,
      watch->unchanged(before ? *before->state : *signature->state),
      call,
      /*is_loose=*/true);
  // Of reasons with numbers in them the first stays: reasons are counted.
  next->reason = before && before->reason.starts_with(kChangesState) &&
          reason.starts_with(kChangesState)
      ? before->reason
      : reason;
  next->tier = Tier::kEager;
  // The first is looked at again at once: it may have been a first call, which
  // makes what later ones use.
  next->patience = !signature->state->unguardable().empty() ? kMaxPatience
      : before ? std::clamp<int64_t>(2 * before->patience, 1, kMaxPatience)
               : 0;
  next->calls_to_next_trace = next->patience;
  if (before) {
    erase(before.get());
  } else {
    TEMPER_LOG(kEager, "'", name, "' runs eagerly: ", reason);
  }
  signatures.push_back(next);
  rebuild_index();
  return next;
}

bool CallSite::Impl::is_due(Signature& signature) {
  if (!signature.loose ||
      signature.calls_to_next_trace.fetch_sub(1, std::memory_order_relaxed) >
          0) {
    return false;
  }
  const std::scoped_lock lock(mutex);
  return !options.fullgraph || signature.patience == 0;
}

Result CallSite::Impl::run_eager(
    const Call& call,
    UserCode code,
    const std::string& reason,
    bool passing) {
  bool fullgraph = false;
  if (!passing) {
    const std::scoped_lock lock(mutex);
    fullgraph = options.fullgraph;
  }
  TEMPER_CHECK(
      !fullgraph,
      "cannot compile '",
      name,
      "': ",
      reason,
      ". To let it run eagerly use CompileOptions().fullgraph(false).");
  counters.bump_eager(reason);
  return code(call.tensors);
}

Result CallSite::Impl::run_plan_of(
    const std::shared_ptr<Signature>& signature,
    const std::shared_ptr<const Plan>& plan,
    const Call& call,
    UserCode code,
    MakeRerun make_rerun) {
  if (runs_hooks(*plan->trace, call.tensors)) {
    return run_eager(call, code, kRunsHooks, /*passing=*/true);
  }
  std::optional<capture::GeneratorState> generator;
  if (plan->trace->rng) {
    generator = capture::GeneratorState::current();
  }
  const auto make_fallback = [&] {
    BackwardFallback fallback;
    fallback.rerun = make_rerun();
    fallback.generator = generator;
    const std::weak_ptr<Impl> weak = weak_from_this();
    const std::weak_ptr<Signature> weak_signature = signature;
    fallback.check_state = [weak, plan, state = signature->state] {
      const auto self = weak.lock();
      TEMPER_CHECK(
          self != nullptr,
          "'",
          plan->name,
          "' was destroyed or decompiled before a backward that its compiled "
          "call does not know. Run the backward first.");
      const auto* watched = self->watch_pointer.load();
      TEMPER_CHECK(
          watched->matches(*state),
          "'",
          self->name,
          "' changed between a call and a backward that the compiled call does "
          "not know: ",
          watched->difference(*state),
          ". Run the backward before changing it.");
    };
    fallback.report = [weak, weak_signature, plan](const std::string& reason) {
      const auto self = weak.lock();
      const auto of = weak_signature.lock();
      if (self && of) {
        self->report_backward(*of, *plan, reason);
      }
    };
    fallback.count = [weak] {
      if (const auto self = weak.lock()) {
        self->counters.bump(base::Counter::kProgramBackwards);
      } else {
        base::bump(base::Counter::kProgramBackwards);
      }
    };
    return fallback;
  };
  capture::OldContents before;
  if (plan->expects_layouts) {
    before = contents_of_mutated(*plan, call.tensors);
  }
  // The code may catch what an operator throws, and go on.
  std::string reason = "an operator of its program threw";
  try {
    if (auto results = run_plan(plan, call.tensors, make_fallback)) {
      counters.bump(base::Counter::kProgramCalls);
      return {std::move(*results), plan->result_structure, plan->prototype};
    }
  } catch (const ops::UnexpectedLayout& error) {
    before.put_back_with_versions();
    reason = error.reason();
    give_up(*signature, reason);
  }
  if (generator) {
    generator->restore();
  }
  return run_eager(call, code, reason, /*passing=*/true);
}

Result CallSite::Impl::call(
    const Call& call,
    UserCode code,
    MakeRerun make_rerun) {
  counters.bump(base::Counter::kCalls);
  const auto global = GlobalState::current();
  auto signature = find(global, call);
  if (signature) {
    if (const auto plan = signature->admitted()) {
      return run_plan_of(signature, plan, call, code, make_rerun);
    }
  }
  if (!signature || is_due(*signature)) {
    if (auto added = add(global, call)) {
      signature = std::move(added);
    } else if (!signature) {
      return run_eager(call, code, "limit of signatures reached");
    } else {
      const std::scoped_lock lock(mutex);
      signature->calls_to_next_trace = signature->patience;
    }
  }
  for (;;) {
    switch (signature->tier.load(std::memory_order_acquire)) {
      case Tier::kAdmitted:
        if (const auto plan = signature->admitted()) {
          return run_plan_of(signature, plan, call, code, make_rerun);
        }
        continue; // Another thread has just changed it.
      case Tier::kReady:
        if (const auto plan = signature->plan.load()) {
          return shadow(signature, plan, call, code, make_rerun);
        }
        continue; // It is about to be stored.
      case Tier::kNew:
        return trace(signature, call, code);
      case Tier::kEager: {
        std::string reason;
        {
          const std::scoped_lock lock(signature->mutex);
          reason = signature->reason;
        }
        return run_eager(call, code, reason);
      }
      case Tier::kWaiting:
        return call_while_waiting(signature, call, code, make_rerun);
    }
  }
}

// A traced call's backward has not come, or may not have been the last one.
//  - With a proved plan the call runs it; when the traced call's graph is gone
//    without the backward that is wanted, a later one is traced (the next, or
//    see `calls_to_skip`).
//  - Without one it runs plainly; when the graph is gone, or it takes very
//    long, the forward is compiled alone.
//  - While another thread is in that backward, nothing is decided.
Result CallSite::Impl::call_while_waiting(
    const std::shared_ptr<Signature>& signature,
    const Call& call,
    UserCode code,
    MakeRerun make_rerun) {
  constexpr int kMaxTracesForBackward = 16;
  enum class Way : uint8_t {
    kTrace,
    kTraceAgain,
    kPlan,
    kForwardAlone,
    kThrew,
    kEager
  };
  Way way = Way::kEager;
  std::shared_ptr<capture::BackwardRecord> record;
  std::shared_ptr<const Plan> traced;
  std::shared_ptr<const Plan> proved;
  {
    const std::scoped_lock lock(signature->mutex);
    const bool threw = signature->waiting && signature->waiting->threw();
    const bool gone = !signature->waiting ||
        ((signature->waiting.use_count() == 1 ||
          ++signature->calls_while_waiting > Signature::kPatience) &&
         signature->waiting->abandon());
    if (signature->tier != Tier::kWaiting) {
      // Another thread has gone on.
    } else if (proved = signature->plan.load();
               proved != nullptr && signature->proved) {
      way = Way::kPlan;
      if (gone) {
        record = std::move(signature->waiting);
        signature->traced.reset();
        signature->wants_backward = signature->wants_backward &&
            signature->traces_for_backward + 1 < kMaxTracesForBackward;
        if (signature->wants_backward && signature->calls_to_skip > 0) {
          --signature->calls_to_skip;
        } else {
          if (signature->wants_backward) {
            ++signature->traces_for_backward;
            way = Way::kTrace;
          }
          signature->tier = Tier::kAdmitted;
        }
      }
    } else if (gone && signature->waiting) {
      record = std::move(signature->waiting);
      traced = std::move(signature->traced);
      way = threw                     ? Way::kThrew
          : traced->rewritten.empty() ? Way::kForwardAlone
                                      : Way::kTraceAgain;
    }
  }
  switch (way) {
    case Way::kTrace:
      return trace(signature, call, code);
    case Way::kPlan:
      return run_plan_of(signature, proved, call, code, make_rerun);
    case Way::kForwardAlone:
      compile(
          *signature,
          std::make_shared<Plan>(*traced),
          capture::forward_part(record->trace()));
      if (signature->tier == Tier::kReady) {
        return shadow(
            signature, signature->plan.load(), call, code, make_rerun);
      }
      break;
    case Way::kThrew:
      retry(*signature, "the backward of a traced call threw");
      return run_eager(
          call,
          code,
          "the backward of a traced call threw",
          /*passing=*/true);
    case Way::kTraceAgain:
      // Written arguments have no old content to run again from, if a backward
      // comes: it must be known before. Perhaps calls with one come later.
      disturbed(
          *signature,
          "no backward has come, which must be known where an argument with a "
          "history is written");
      break;
    case Way::kEager:
      break;
  }
  return run_eager(
      call,
      code,
      "waiting for the backward of a traced call",
      /*passing=*/true);
}

bool inside_another_call() {
  return capture::capturing() || rerunning();
}

CallSite::CallSite(
    std::string name,
    SiteOptions options,
    std::function<void(Watch&)> watch)
    : impl_(std::make_shared<Impl>(
          std::move(name),
          std::move(options),
          std::move(watch))) {}

CallSite::~CallSite() = default;

Result CallSite::call(const Call& call, UserCode code, MakeRerun make_rerun) {
  if (inside_another_call()) {
    return code(call.tensors);
  }
  return impl_->call(call, code, make_rerun);
}

void CallSite::set_options(SiteOptions options) {
  const std::scoped_lock lock(impl_->mutex);
  if (impl_->options == options) {
    return;
  }
  impl_->options = std::move(options);
  impl_->signatures.clear();
  impl_->graphs.clear();
  impl_->said_limit = false;
  impl_->rebuild_index();
}

SiteOptions CallSite::options() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->options;
}

Counters CallSite::counters() const {
  return impl_->counters.read();
}

} // namespace temper::dispatch
