// Differences that are known and not settled: programs that show them are left
// out, so that others can be seen. Set one to false to see it.
#pragma once

namespace temper::fuzz::known {

/// A returned view that gets a gradient, taken between two other uses of the
/// same tensor: its part of the gradient is added before or after both.
constexpr bool kViewsBetweenUses = true;
/// A backward of a kind not seen before, of results that depend on each other:
/// the steps' parts of a gradient are added step by step.
constexpr bool kSumsOfUnknown = true;
/// A backward of a kind not seen before, after a write to an input: an error.
constexpr bool kWrittenInputs = true;
/// A gradient on its way through a result from which another is computed is
/// dense, where eager's may be a view: products of complex numbers, whose
/// rounding depends on the strides, differ in their last bits.
constexpr bool kComplexBetweenResults = true;

} // namespace temper::fuzz::known
