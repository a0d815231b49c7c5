// What the module layer hands to dispatch for one call, and gets back.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/FunctionRef.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace temper::dispatch {

/// The flattened result of a call: the user's own (eager, traced,
/// materialised), or tensors for a prototype.
struct Result {
  std::vector<at::Tensor> tensors; ///< In order; undefined ones included.
  /// Everything else of the result by value (scalars, strings, sizes of
  /// containers, presence of optionals), serialised: compared byte for byte.
  std::string structure;
  /// What the module layer needs to rebuild a result of this structure from
  /// tensors; shared with the signature, so immutable.
  std::shared_ptr<const void> prototype;
};

/// The user's code with other tensors in the place of the call's own.
using UserCode = c10::function_ref<Result(const std::vector<at::Tensor>&)>;

/// One call.
struct Call {
  /// All tensor leaves of the arguments in order; undefined ones included.
  /// Messages call them "argument 0", ….
  std::vector<at::Tensor> tensors;
  /// Everything else of the arguments by value, serialised as in `Result`:
  /// part of the signature.
  std::string structure;
};

} // namespace temper::dispatch
