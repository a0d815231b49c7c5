// Differences that are known and not settled yet: programs that show them are
// left out, so that others can be seen. Set one to false to see it.
#pragma once

namespace temper::fuzz::known {

/// A returned view that gets a gradient, taken between two other uses of the
/// same tensor: its part of the gradient is added before or after both.
constexpr bool kViewsBetweenUses = true;
/// A backward of a kind not seen before, of results that depend on each other,
/// adds in another order; it may not follow a write to an input.
constexpr bool kVaryingRoots = true;
/// A view of a parameter that is made under no_grad inside a call and used
/// after it: it requires a gradient and leads nowhere, so no backward runs
/// compiled.
constexpr bool kViewsOfOtherModes = false;
/// A view of a torch::tensor({...}) with its geometry is returned as the same
/// tensor.
constexpr bool kWrittenConstants = false;

} // namespace temper::fuzz::known
