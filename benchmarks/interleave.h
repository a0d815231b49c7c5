// Timing things against each other on a machine whose speed drifts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace bench {

/// How long to measure.
struct Timing {
  double seconds = 2; ///< Rounds are added until this is spent.
  int64_t rounds = 0; ///< If positive: so many, whatever they take.
};

/// One of the things that are timed in turn.
struct Side {
  std::function<void()> call; ///< What is timed.
  std::function<void()> before{}; ///< Runs before each call, untimed; or null.
};

/// Microseconds of one call, by round.
using Samples = std::vector<double>;

/// Times the sides in turn, in rounds: ABC BCA CAB …, after some rounds that
/// are not counted. A short call without a `before` is repeated within its turn
/// and its mean taken, so that the clock does not matter. One `Samples` a side,
/// all of one length, at least `kMinRounds` if `timing` gives no number.
std::vector<Samples> interleave(
    const Timing& timing,
    const std::vector<Side>& sides);

constexpr int64_t kMinRounds = 15;

/// Microseconds that one call takes.
double time_once(const std::function<void()>& call);

double median(Samples values);
double minimum(const Samples& values);
/// The median of `a[i] / b[i]`: what drifts from round to round cancels out.
double median_ratio(const Samples& a, const Samples& b);
/// The median of `a[i] - b[i]`.
double median_difference(const Samples& a, const Samples& b);

} // namespace bench
