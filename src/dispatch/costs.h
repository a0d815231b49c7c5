// What a call site spent on becoming fast: for `explain` and the logs.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <iosfwd>

namespace temper::dispatch {

/// What takes time.
enum class Cost : uint8_t {
  kTraces, ///< The user's code under the recorder.
  kShadowRuns, ///< The user's code on shadow tensors, the checks of what it
               ///< did, and what a divergence executes.
  kCompiles, ///< Backends, where the store had no artifact.
};
constexpr size_t kNumCosts = 3;

/// Numbers and times. Thread-safe.
class Costs {
 public:
  /// Adds one, which took so long.
  void add(Cost cost, std::chrono::nanoseconds took) noexcept;

  /// "1 trace 0.41 ms, 2 shadow runs 0.2 ms": those that there were; nothing
  /// if there were none.
  void print(std::ostream& out) const;

 private:
  struct Total {
    std::atomic<int64_t> number{0};
    std::atomic<int64_t> nanoseconds{0};
  };
  std::array<Total, kNumCosts> totals_;
};

/// Adds to the costs what its lifetime takes, also where an exception ends it.
class Stopwatch {
 public:
  Stopwatch(Costs& costs, Cost cost) : costs_(costs), cost_(cost) {}
  ~Stopwatch() {
    costs_.add(cost_, std::chrono::steady_clock::now() - start_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  Costs& costs_;
  const Cost cost_;
  const std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

} // namespace temper::dispatch
