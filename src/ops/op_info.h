// What temper knows of an operator, derived once from its schema, its tags and
// the tables of its class (views.cpp, effects.cpp).
//
// Passes ask here and nowhere else: what is in no table and has no tag is an
// extern call, about which nothing good is assumed.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

namespace temper::ops {

/// How the returned tensors relate to the memory of an operand.
enum class Alias : uint8_t {
  kFresh, ///< New memory.
  kView, ///< Always the memory of operand `alias_operand`.
  kMaybe, ///< Either, by strides or values at run time.
};

/// What an operator makes of the content before it of an operand that it
/// writes.
enum class OldContent : uint8_t {
  kUnused, ///< Run twice it leaves what it leaves once: copy_, index_copy_.
  kAddedTo, ///< The result depends on it, no gradient does: add_.
  kRead, ///< Results and gradients may depend on it.
};

struct OpInfo {
  Alias alias = Alias::kFresh;
  int32_t alias_operand = -1; ///< Valid unless `alias` is kFresh.
  /// True iff a view's geometry counts from the start of the storage
  /// (as_strided): it means something else on a copy of the operand.
  bool absolute_view = false;
  bool rng = false; ///< Consumes a generator's state.
  bool foreign = false; ///< From outside LibTorch (and temper).
  /// True iff it has effects besides its results and its writes, or may have
  /// (all `foreign` ones): never dropped, repeated or moved.
  bool impure = false;
  /// True iff it is elementwise and costs about as much as reading its
  /// operands.
  bool cheap = false;
  /// True iff nothing is lost where nobody needs its results: it has no effects
  /// and can't throw because of the values that it reads.
  bool droppable = false;
  bool data_dependent = false; ///< Output sizes or results depend on values.
  /// True iff it changes sizes, strides or the storage of an operand (resize_,
  /// set_, transpose_): it has no functional form.
  bool changes_metadata = false;
  OldContent old_content = OldContent::kRead; ///< Of `schema_writes`.
  /// Operands that the schema says are written; a list means its elements.
  std::vector<int32_t> schema_writes;
};

/// Thread-safe; the reference stays valid.
const OpInfo& info(const c10::OperatorHandle& op);

} // namespace temper::ops
