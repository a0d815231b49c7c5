// The insides of a call site: signatures, their tiers, and the index that the
// hot path reads.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/hash.h"
#include "capture/backward.h"
#include "capture/shadow.h"
#include "dispatch/argument_guard.h"
#include "dispatch/call_site.h"
#include "dispatch/costs.h"
#include "dispatch/global_state.h"
#include "dispatch/plan.h"
#include "dispatch/watch.h"

namespace temper::dispatch {

/// What a call with this signature does.
enum class Tier : uint8_t {
  kNew, ///< Traced at the next call.
  kWaiting, ///< Traced, its backward may come; or before one more such trace.
  kReady, ///< Compiled; the next call is shadowed.
  kAdmitted, ///< Proved: guards, then the artifact.
  kEager, ///< The user's code, for a reason.
};

/// One combination of argument metadata, module state and global state.
struct Signature {
  Signature(
      GlobalState global_state,
      std::shared_ptr<const Snapshot> snapshot,
      const Call& call,
      bool is_loose = false)
      : global(global_state),
        state(std::move(snapshot)),
        arguments(call.tensors, *state),
        structure(call.structure),
        loose(is_loose) {}

  const GlobalState global;
  const std::shared_ptr<const Snapshot> state;
  const ArgumentGuard arguments;
  const std::string structure;
  /// It stands for calls that change the state, or can't tell it, so that each
  /// would need a signature of its own. `state` is what they have in common.
  /// Always eager; now and then such a call is traced all the same.
  const bool loose;
  std::atomic<int64_t> calls_to_next_trace{0}; ///< If loose.
  int64_t patience = 0; ///< What that began with. Guarded by the site's mutex.

  std::atomic<Tier> tier{Tier::kNew};
  /// The plan that calls run, if the tier is kReady (it may be about to come
  /// then) or kAdmitted.
  std::atomic<std::shared_ptr<const Plan>> plan;

  /// That plan if it is admitted, else null. A plan that is not proved comes
  /// after the tier has told so: hence this order.
  std::shared_ptr<const Plan> admitted() const {
    auto found = plan.load();
    return tier.load(std::memory_order_acquire) == Tier::kAdmitted ? found
                                                                   : nullptr;
  }

  std::mutex mutex; ///< Guards what follows.
  std::string reason; ///< Of kEager.
  /// A shadowed call has matched the forward of `plan`.
  bool proved = false;
  /// A backward came that the plan doesn't know: traces look for it.
  bool wants_backward = false;
  /// The traced call whose backwards are waited for, and its forward.
  std::shared_ptr<capture::BackwardRecord> waiting;
  std::shared_ptr<const Plan> traced;
  /// Recorded backwards that ran the user's code, by their pattern: one of
  /// another call must be equal.
  struct Unproved {
    capture::BackwardPattern pattern;
    std::weak_ptr<const capture::BackwardRecord> call;
    std::shared_ptr<const capture::Trace> trace;
    int differed = 0;
  };
  std::vector<Unproved> unproved;
  /// Calls since the trace whose backward may still come: after that many it
  /// is given up. It is set to that number where the next call is to do so.
  static constexpr int kPatience = 8;
  int calls_while_waiting = 0;
  int64_t doubts = 0; ///< How often a proof was withdrawn.
  int retries = 0; ///< Traces and shadow runs that came to nothing.
  int disturbances = 0; ///< Those that another thread may have disturbed.
  int64_t pause = 0; ///< Calls to run eagerly before the next trace.
  int unknown_backwards = 0; ///< After which one more was looked for.
  /// That did not bring the wanted one. If it is given up, later ones get one
  /// trace each.
  int traces_for_backward = 0;
  int calls_to_skip = 0; ///< Before the next such trace.
  int unknown_in_task = -1; ///< The engine's, in which one came last.
};

/// Sets the tier, unless somebody has given up. Under the signature's mutex.
void go_to(Signature& signature, Tier tier);

/// Signatures by the state they share. Immutable.
struct Index {
  struct Group {
    GlobalState global;
    std::shared_ptr<const Snapshot> state;
    std::vector<std::shared_ptr<Signature>> signatures;
  };
  std::vector<Group> groups;
  std::vector<std::shared_ptr<Signature>> loose;
};

/// How the reason begins of calls that went another way than their trace.
constexpr const char* kDiffers = "differs from call to call: ";

/// How the reason begins of calls that change the state they are guarded by.
constexpr std::string_view kChangesState = "the call changes watched state: ";

constexpr const char* kRunsHooks =
    "a gradient that is taken inside the call runs a hook of one of its inputs";

/// For `CallSite::Impl::compile`.
constexpr int64_t kUnproved = -1;

struct Tracing;

struct CallSite::Impl : std::enable_shared_from_this<CallSite::Impl> {
  Impl(
      std::string site_name,
      SiteOptions site_options,
      std::function<void(Watch&)> build);

  Result call(const Call& call, UserCode code, MakeRerun make_rerun);

  // The tiers.
  /// `passing`: it will be compiled later, so `fullgraph` does not object.
  Result run_eager(
      const Call& call,
      UserCode code,
      const std::string& reason,
      bool passing = false);
  Result run_plan_of(
      const std::shared_ptr<Signature>& signature,
      const std::shared_ptr<const Plan>& plan,
      const Call& call,
      UserCode code,
      MakeRerun make_rerun);
  Result trace(
      const std::shared_ptr<Signature>& signature,
      const Call& call,
      UserCode code);
  /// The code has returned: plans the calls after it, or says why not.
  void finish_trace(
      const std::shared_ptr<Signature>& signature,
      const Call& call,
      Tracing& tracing,
      const Result& result);
  bool waits_for_backward(
      const std::shared_ptr<Signature>& signature,
      Tracing& tracing,
      const std::shared_ptr<Plan>& plan,
      const std::vector<at::Tensor>& results);
  void check_effects(
      const Signature& signature,
      const Call& call,
      capture::Recorder& recorder) const;
  Result shadow(
      const std::shared_ptr<Signature>& signature,
      const std::shared_ptr<const Plan>& plan,
      const Call& call,
      UserCode code,
      MakeRerun make_rerun);

  /// False if the call has to start again: see `ShadowRun::refused`.
  bool diverged(
      Signature& signature,
      capture::ShadowRun& run,
      const std::string& why,
      bool perhaps_disturbed = false);
  /// A shadow run has matched, but the code has kept tensors of it: gives them
  /// their data, without the call's effects. False as of `diverged`.
  static bool fill_kept(
      const Plan& plan,
      const Call& call,
      capture::ShadowRun& run,
      const capture::GeneratorState& generator,
      const std::string& kept);
  std::string difference(
      const Signature& signature,
      const Plan& plan,
      const capture::ShadowRun& run,
      const Result& result,
      const capture::GeneratorState& generator,
      bool& disturbance) const;
  static std::string kept_shadow(
      const Call& call,
      const capture::ShadowRun& run,
      const capture::Trace& trace);

  std::shared_ptr<Signature> find(const GlobalState& global, const Call& call);
  std::shared_ptr<Signature> add(const GlobalState& global, const Call& call);
  void rebuild_index();
  /// Makes `signature`, with whose state no other call will come, or whose
  /// state nobody can vouch for, a loose one. It may have been added or not.
  std::shared_ptr<Signature> loosen(
      const std::shared_ptr<Signature>& signature,
      const Call& call,
      const std::string& reason);
  /// True iff a call of this loose signature is to get one of its own.
  bool is_due(Signature& signature);
  /// A trace came to nothing. True iff the call has changed the state, so that
  /// the signature is a loose one now; nothing else is to be done then.
  bool loosened(
      const std::shared_ptr<Signature>& signature,
      const Call& call,
      const std::string& reason);

  /// A call whose traced backward may still come.
  Result call_while_waiting(
      const std::shared_ptr<Signature>& signature,
      const Call& call,
      UserCode code,
      MakeRerun make_rerun);
  /// A backward of a traced call has ended: adds it to the signature's plan, or
  /// makes one of `traced`.
  void finish_backward(
      const std::shared_ptr<Signature>& signature,
      const Plan& traced,
      capture::BackwardRecord& record);
  /// Compiles and sets the tier; notes a reason if it can't be done.
  /// `proved_at`: a shadowed call has matched this forward, and there were so
  /// many doubts then; kUnproved if none has.
  void compile(
      Signature& signature,
      std::shared_ptr<Plan> plan,
      capture::Trace trace,
      int64_t proved_at = kUnproved);
  /// Fills what a plan needs to run. The reason why not, if it can't.
  std::string complete(Plan& plan, capture::Trace trace);
  /// Warns once that a limit is reached; `rest`: of what, and the remedy. Under
  /// the mutex.
  void say_limit(int64_t limit, const char* rest);
  /// True iff the site may have this graph, too.
  bool admits_graph(const base::Hash128& skeleton);
  /// Something threw that should not: the user's call or backward goes on.
  void compile_failed(Signature& signature, const std::exception& error);
  /// Makes the signature eager, for good; the reason goes to logs and explain.
  void give_up(Signature& signature, const std::string& reason);
  /// Traces again, each time after twice as many calls: perhaps it was another
  /// thread's doing.
  void disturbed(Signature& signature, const std::string& reason);
  /// `give_up`, but only after it has happened several times.
  void retry(Signature& signature, const std::string& reason);
  /// True iff the backward that `record` has ended was recorded before in
  /// another call, just so; else it is looked for again.
  bool prove_backward(
      Signature& signature,
      const capture::BackwardRecord& record);
  /// A backward came that `plan`, by which its call ran, does not know.
  void report_backward(
      Signature& signature,
      const Plan& plan,
      const std::string& reason);

  const std::string name;
  const std::function<void(Watch&)> build_watch;
  base::SiteCounters counters;
  Costs costs;
  std::atomic<std::shared_ptr<const Index>> index;
  std::atomic<size_t> hint{0}; ///< The group that matched last.

  mutable std::mutex mutex; ///< Guards what follows.
  SiteOptions options;
  std::shared_ptr<const Watch> watch;
  std::atomic<const Watch*> watch_pointer{nullptr};
  std::vector<std::shared_ptr<Signature>> signatures;
  std::set<base::Hash128> graphs; ///< Skeletons of this site.
  bool said_limit = false;
};

} // namespace temper::dispatch
