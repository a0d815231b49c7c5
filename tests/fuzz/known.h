// Differences that are known and not settled yet: programs that show them are
// left out, so that others can be seen. Set one to false to see it.
#pragma once

namespace temper::fuzz::known {

/// A view made in another grad mode than the call's comes back as one that was
/// made in the call's mode.
constexpr bool kViewsOfOtherModes = true;
/// An input that is a root of a backward itself, a view that is one, or two
/// results that share memory: eager adds the uses inside the call to the root's
/// gradient one by one, a compiled backward their sum.
constexpr bool kSharedRoots = true;
/// A backward of a kind not seen before, of results that depend on each other.
constexpr bool kVaryingRoots = true;
/// A detached input that a write made differentiable is returned detached.
constexpr bool kDetachedWrites = true;
/// A result, and something computed from it, where the gradient of the first
/// goes through unchanged: an internal error, the call runs eagerly.
constexpr bool kPassedTangents = true;
/// torch::tensor({...}) written in place: an internal error.
constexpr bool kWrittenConstants = true;
/// Under no_grad inside a call: another size of a tensor that requires grad.
constexpr bool kMetadataChanges = true;
/// requires_grad_() of an input's view inside a call: returned without it.
constexpr bool kRequiredViews = true;
/// autograd::grad of an input that is not reached: never runs compiled.
constexpr bool kUnreachedInputs = true;
/// An operator whose result nobody needs is left out, even one that throws for
/// some values (an integer division by zero, an index out of range).
constexpr bool kUnusedThrows = true;

} // namespace temper::fuzz::known
