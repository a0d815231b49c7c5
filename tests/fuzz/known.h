// Differences that are known and not settled yet: programs that show them are
// left out, so that others can be seen. Set one to false to see it.
#pragma once

namespace temper::fuzz::known {

/// An input that is a root of a backward itself, a view that is one, or two
/// results that share memory: eager adds the uses inside the call to the root's
/// gradient one by one, a compiled backward their sum.
constexpr bool kSharedRoots = true;
/// A backward of a kind not seen before, of results that depend on each other,
/// adds in another order; it may not follow a write to an input.
constexpr bool kVaryingRoots = true;
/// A view of a parameter that is made under no_grad inside a call and used
/// after it: it requires a gradient and leads nowhere, so no backward runs
/// compiled.
constexpr bool kViewsOfOtherModes = true;
/// A view of a torch::tensor({...}) with its geometry is returned as the same
/// tensor.
constexpr bool kWrittenConstants = true;
/// Under no_grad inside a call: another size of a tensor that requires grad.
constexpr bool kMetadataChanges = true;
/// The strides of a sum of gradients where a dimension has size 1.
constexpr bool kThinGradients = true;
/// An operator whose result nobody needs is left out, even one that throws for
/// some values (an integer division by zero, an index out of range).
constexpr bool kUnusedThrows = true;

} // namespace temper::fuzz::known
