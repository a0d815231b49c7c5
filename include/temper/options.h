// How a module or a function is compiled.
#pragma once

#include <torch/arg.h>

#include <cstdint>
#include <string>

#include <temper/export.h>

namespace temper {

/// Options of `compile()`, in LibTorch's builder style:
/// \rst
/// .. code-block:: cpp
///
///   net->compile(temper::CompileOptions().backend("aten").fullgraph(true));
/// \endrst
/// `compile()` throws `temper::Error` on a value that cannot be.
struct TEMPER_API CompileOptions {
  /// What runs a graph: "aten" (ATen's operators, in one go) or "eager" (the
  /// code is traced and counted, and always runs itself).
  TORCH_ARG(std::string, backend) = "aten";

  /// How far values may be from eager's:
  /// - "accurate": each operator rounds as eager does; sums inside of it may be
  ///   added in another order;
  /// - "eager": the same bits;
  /// - "fast": approximations, too.
  /// A backend may stay closer: "aten" gives the bits of eager under each.
  TORCH_ARG(std::string, numerics) = "accurate";

  /// Whether a backend may keep what it makes of parameters and buffers (packed
  /// forms, folded constants): they are to stay as they are then, since not
  /// every write can be seen. Without it programs read live weights. "aten"
  /// makes nothing of weights, and reads live ones with it, too.
  TORCH_ARG(bool, freeze_weights) = false;

  /// Whether a call whose signature is known to run eagerly for good throws
  /// instead, with the reason. The call that finds out (it was traced, its
  /// shadow run diverged or read data by pointer) does not throw, nor do calls
  /// that only wait for the backward of a traced one.
  TORCH_ARG(bool, fullgraph) = false;

  /// The graphs kept; calls that would need one more run eagerly. At least 1.
  TORCH_ARG(int64_t, max_graphs) = 8;

  /// The signatures kept: combinations of argument metadata, module state and
  /// global state. Calls that would need one more run eagerly. At least 1.
  TORCH_ARG(int64_t, max_signatures) = 256;

 public:
  /// True iff every option has the same value.
  bool operator==(const CompileOptions&) const = default;
};

} // namespace temper
