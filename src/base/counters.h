// Counting what temper does: per call site and process-wide.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "temper/counters.h"

namespace temper::base {

/// The scalar fields of `temper::Counters`.
enum class Counter : uint8_t {
  kCalls,
  kProgramCalls,
  kTraces,
  kShadowRuns,
  kAdmissions,
  kGraphs,
  kCompiles,
  kProgramBackwards,
};
constexpr int kNumCounters = 8;

/// One set of counters. Safe to use from many threads; `add` is one relaxed
/// atomic addition.
class CounterSet {
 public:
  void add(Counter counter, int64_t n = 1) noexcept {
    counts_[static_cast<size_t>(counter)].fetch_add(
        n, std::memory_order_relaxed);
  }
  void add_eager(std::string_view reason, int64_t n = 1);

  /// A snapshot: each number is right, several of them need not be of the same
  /// instant while other threads count.
  Counters read() const;
  void reset();

 private:
  std::array<std::atomic<int64_t>, kNumCounters> counts_{};
  mutable std::mutex mutex_; ///< Guards `eager_`.
  std::map<std::string, int64_t, std::less<>> eager_;
};

namespace detail {
/// The process-wide set. Never destroyed: threads may count during exit.
CounterSet& process_counters();
} // namespace detail

/// Counts for the process only: for what no call site does.
inline void bump(Counter counter, int64_t n = 1) noexcept {
  detail::process_counters().add(counter, n);
}

/// The counters of one call site; what it counts, the process counts too.
class SiteCounters {
 public:
  void bump(Counter counter, int64_t n = 1) noexcept {
    own_.add(counter, n);
    base::bump(counter, n);
  }
  /// A call that ran the user's code plainly.
  void bump_eager(std::string_view reason);

  Counters read() const {
    return own_.read();
  }

 private:
  CounterSet own_;
};

} // namespace temper::base
