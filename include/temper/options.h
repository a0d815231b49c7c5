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
///   net->compile(temper::CompileOptions().backend("eager").fullgraph(true));
/// \endrst
/// `compile()` throws `temper::Error` on a value that cannot be.
struct TEMPER_API CompileOptions {
  /// What runs a graph: "aten" (ATen's operators, in one go) or "eager" (the
  /// code is traced and counted, and always runs itself).
  TORCH_ARG(std::string, backend) = "aten";

  /// Whether it is an error where a call would have to run eagerly.
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
