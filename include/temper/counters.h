// Counters: what temper did, as numbers that tests and users can assert.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include <temper/export.h>

namespace temper {

/// Totals of the process since its start or the last `reset_counters()`, or of
/// one call site: `counters_of(module)`.
struct Counters {
  /// Calls of compiled modules and functions (calls made inside another
  /// compiled call's capture are part of that capture and not counted).
  int64_t calls = 0;
  /// Calls whose values came from an artifact (admitted or shadowed).
  int64_t program_calls = 0;
  /// Calls that ran the user's code eagerly under the recorder.
  int64_t traces = 0;
  /// Calls that ran the user's code on shadow tensors, matched or not.
  int64_t shadow_runs = 0;
  /// Signatures for which a shadow run matched: they are served by guards now.
  int64_t admissions = 0;
  /// Distinct skeletons handed to a backend: those new to the process.
  int64_t graphs = 0;
  /// Backend invocations, failed ones too.
  int64_t compiles = 0;
  /// Backward passes (whole ones, not nodes) that ran an artifact.
  int64_t program_backwards = 0;
  /// Calls that ran the user's code plainly, by reason. So count, too, shadow
  /// runs that diverged (their calls went on eagerly), and, though they are no
  /// calls, backward passes that the artifact did not know and that ran the
  /// code again.
  std::map<std::string, int64_t> eager_calls;

  /// Sum over all reasons of `eager_calls`.
  TEMPER_API int64_t eager_total() const;
};

/// A snapshot of the process-wide counters.
TEMPER_API Counters counters();

/// Sets all process-wide counters to zero (the artifact store is kept).
TEMPER_API void reset_counters();

} // namespace temper
