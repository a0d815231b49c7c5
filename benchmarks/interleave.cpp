// Rounds of turns, and what is made of their times.
#include "interleave.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

namespace bench {

namespace {

using Clock = std::chrono::steady_clock;

// Signatures are admitted, stores filled and allocators warm by then.
constexpr int64_t kWarmupRounds = 5;
// A turn is not shorter than this, if its call may be repeated.
constexpr double kTurn = 1000;
constexpr int64_t kMaxRepeats = 10'000;
constexpr int64_t kMaxRounds = 100'000;

double since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start)
      .count();
}

double turn(const Side& side, int64_t repeats) {
  if (side.before) {
    side.before();
  }
  const auto start = Clock::now();
  for (int64_t i = 0; i < repeats; ++i) {
    side.call();
  }
  return since(start) / static_cast<double>(repeats);
}

Samples by_round(
    const Samples& a,
    const Samples& b,
    double (*of)(double, double)) {
  Samples result(a.size());
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), of);
  return result;
}

} // namespace

std::vector<Samples> interleave(
    const Timing& timing,
    const std::vector<Side>& sides) {
  std::vector<int64_t> repeats(sides.size(), 1);
  for (int64_t round = 0; round < kWarmupRounds; ++round) {
    for (size_t i = 0; i < sides.size(); ++i) {
      const double us = turn(sides[i], 1);
      if (!sides[i].before) {
        repeats[i] = std::clamp(
            static_cast<int64_t>(kTurn / us), int64_t{1}, kMaxRepeats);
      }
    }
  }
  std::vector<Samples> samples(sides.size());
  const auto start = Clock::now();
  const auto enough = [&](int64_t round) {
    if (timing.rounds > 0) {
      return round >= timing.rounds;
    }
    return round >= kMinRounds &&
        (round >= kMaxRounds || since(start) > timing.seconds * 1e6);
  };
  for (int64_t round = 0; !enough(round); ++round) {
    for (size_t k = 0; k < sides.size(); ++k) {
      const size_t i = (k + static_cast<size_t>(round)) % sides.size();
      samples[i].push_back(turn(sides[i], repeats[i]));
    }
  }
  return samples;
}

double time_once(const std::function<void()>& call) {
  return turn({call}, 1);
}

double median(Samples values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double minimum(const Samples& values) {
  return *std::min_element(values.begin(), values.end());
}

double median_ratio(const Samples& a, const Samples& b) {
  return median(by_round(a, b, [](double x, double y) { return x / y; }));
}

double median_difference(const Samples& a, const Samples& b) {
  return median(by_round(a, b, [](double x, double y) { return x - y; }));
}

} // namespace bench
