// Writes that operators do although their schema does not say so.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

namespace temper::ops {

/// Indices of arguments.
using HiddenWrites = c10::SmallVector<int32_t, 2>;

/// Whether the operator has hidden writes with some arguments.
bool may_write_hidden(const c10::OperatorHandle& op);

/// The defined tensors among the arguments that this call writes beyond its
/// schema. `arguments` points to all arguments, in the order of the schema.
HiddenWrites hidden_writes(
    const c10::OperatorHandle& op,
    const c10::IValue* arguments);

} // namespace temper::ops
