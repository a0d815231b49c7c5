// A call site: one compiled module or function, its signatures and their tiers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/numerics.h"
#include "dispatch/call.h"
#include "dispatch/watch.h"

namespace temper {
struct Counters;
}

namespace temper::dispatch {

/// The validated options of a call site.
struct SiteOptions {
  std::string backend = "aten"; ///< A registered backend, or "eager".
  codegen::Numerics numerics = codegen::Numerics::kAccurate;
  bool freeze_weights = false; ///< See `codegen::BackendOptions`.
  bool fullgraph = false; ///< Eager with a reason is an error instead.
  int64_t max_graphs = 8; ///< Skeletons, then eager.
  int64_t max_signatures = 256; ///< Signatures, then eager.
  bool operator==(const SiteOptions&) const = default;
};

/// A copy of the user's code and its arguments that outlives the call.
using Rerun = std::function<Result(const std::vector<at::Tensor>&)>;
using MakeRerun = c10::function_ref<Rerun()>;

/// True iff this thread is inside a call that is being captured, or run again
/// for a backward: what is compiled and called there is part of that call.
bool inside_another_call();

/// Thread-safe. Owned by the compiled module or callable.
class CallSite {
 public:
  /// `name` is for messages. `watch` builds the site's roots, once, at the
  /// first call.
  CallSite(
      std::string name,
      SiteOptions options,
      std::function<void(Watch&)> watch);
  ~CallSite();
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  /// Runs one call on the highest tier that is sound. `code` is called zero or
  /// one times (twice only after a raw data access on a shadow tensor, or where
  /// an operator of the program throws), on the calling thread. Exceptions of
  /// the user's code pass through. `make_rerun` is asked when the code may be
  /// needed after the call, for a backward that no artifact knows.
  Result call(const Call& call, UserCode code, MakeRerun make_rerun);

  /// Options in force from the next call on; drops what was admitted if they
  /// differ.
  void set_options(SiteOptions options);
  SiteOptions options() const;
  /// This site's own counters.
  Counters counters() const;
  /// Text: signatures, tiers, reasons, graphs, counters, costs.
  std::string explain() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_; ///< Backwards that are pending share it.
};

} // namespace temper::dispatch
