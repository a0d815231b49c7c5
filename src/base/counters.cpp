// Counting what temper does: per call site and process-wide.
#include "base/counters.h"

namespace temper {

int64_t Counters::eager_total() const {
  int64_t total = 0;
  for (const auto& [reason, number] : eager_calls) {
    total += number;
  }
  return total;
}

Counters counters() {
  return base::detail::process_counters().read();
}

void reset_counters() {
  base::detail::process_counters().reset();
}

namespace base {

void CounterSet::add_eager(std::string_view reason, int64_t n) {
  const std::lock_guard lock(mutex_);
  const auto found = eager_.find(reason);
  if (found != eager_.end()) {
    found->second += n;
  } else {
    eager_.emplace(reason, n);
  }
}

Counters CounterSet::read() const {
  const auto count = [this](Counter counter) {
    return counts_[static_cast<size_t>(counter)].load(
        std::memory_order_relaxed);
  };
  Counters result;
  result.calls = count(Counter::kCalls);
  result.program_calls = count(Counter::kProgramCalls);
  result.traces = count(Counter::kTraces);
  result.shadow_runs = count(Counter::kShadowRuns);
  result.admissions = count(Counter::kAdmissions);
  result.graphs = count(Counter::kGraphs);
  result.compiles = count(Counter::kCompiles);
  result.program_backwards = count(Counter::kProgramBackwards);
  const std::lock_guard lock(mutex_);
  result.eager_calls.insert(eager_.begin(), eager_.end());
  return result;
}

void CounterSet::reset() {
  for (auto& count : counts_) {
    count.store(0, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  eager_.clear();
}

CounterSet& detail::process_counters() {
  static CounterSet& set = *new CounterSet;
  return set;
}

void SiteCounters::bump_eager(std::string_view reason) {
  own_.add_eager(reason);
  detail::process_counters().add_eager(reason);
}

} // namespace base
} // namespace temper
