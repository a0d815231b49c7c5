// What capture needs to know of an operator, computed once per operator.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temper::capture {

/// How one argument of a schema is recorded.
enum class ArgKind : uint8_t {
  kTensor, ///< Tensor or Tensor?.
  kTensorList, ///< Tensor[] or Tensor?[].
  kSlot, ///< SymInt, float, Scalar (or optional).
  kSlotList, ///< Lists of those.
  kConstant, ///< Structure.
  kGenerator,
  kUnsupported, ///< Storage, Stream, script objects, …
};

struct OpInfo {
  std::string name; ///< "aten::add.Tensor"
  std::vector<ArgKind> args;
  /// Arguments that the op writes, by schema and by the table of hidden ones
  /// (the latter may depend on the arguments: see `ops::hidden_writes`).
  std::vector<int32_t> writes;
  bool returns_tensors = true; ///< Only tensors and lists of tensors.
  bool returns_list = false; ///< Returns one list and nothing else.
  bool view = false; ///< The schema says that results alias arguments.
  /// The view's geometry counts from the start of the storage (as_strided).
  bool absolute_view = false;
  bool rng = false; ///< Draws from a generator.
  /// Has no kernel of its own below autograd: send it through its composite
  /// kernel with interception on, so that inference mode gives the same ops.
  bool decompose = false;
  bool data_dependent = false; ///< Value or shape depends on data.
  /// Creates memory without writing it (empty, empty_strided, …).
  bool uninitialised = false;
  /// The out-of-place view op of a metadata-only in-place op (`unsqueeze_`).
  std::optional<c10::OperatorHandle> as_view;
  bool metadata_write = false; ///< Changes geometry or storage of an argument.
  /// May write operands that its schema does not name (`ops::hidden_writes`).
  bool hidden_writes = false;
  /// False for ops that look only at the geometry of their operands.
  bool reads_data = true;
  bool equal = false; ///< `aten::equal`, which identity may answer.
  bool synthetic = false; ///< temper's own: never called by the user's code.
  bool foreign = false; ///< From outside LibTorch.
};

/// Thread-safe; the reference stays valid for ever.
const OpInfo& op_info(const c10::OperatorHandle& op);

} // namespace temper::capture
