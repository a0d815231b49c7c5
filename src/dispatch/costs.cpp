// What a call site spent on becoming fast.
#include "dispatch/costs.h"

#include <ostream>

namespace temper::dispatch {

namespace {

constexpr std::array<const char*, kNumCosts> kNames = {
    "trace",
    "shadow run",
    "compile"};

} // namespace

void Costs::add(Cost cost, std::chrono::nanoseconds took) noexcept {
  Total& total = totals_[static_cast<size_t>(cost)];
  total.number.fetch_add(1, std::memory_order_relaxed);
  total.nanoseconds.fetch_add(took.count(), std::memory_order_relaxed);
}

void Costs::print(std::ostream& out) const {
  const char* separator = "";
  for (size_t i = 0; i < kNumCosts; ++i) {
    const int64_t number = totals_[i].number.load(std::memory_order_relaxed);
    if (number == 0) {
      continue;
    }
    // In steps of 10 us: what is behind that differs from run to run.
    const int64_t hundredths =
        (totals_[i].nanoseconds.load(std::memory_order_relaxed) + 5000) / 10000;
    out << separator << number << ' ' << kNames[i] << (number == 1 ? "" : "s")
        << ' ' << static_cast<double>(hundredths) / 100 << " ms";
    separator = ", ";
  }
}

} // namespace temper::dispatch
