// Which arguments of an operator are run-time scalars (slots) and which are
// structure.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace temper::graph {

/// True iff what a call passes here is kept out of the skeleton: sizes,
/// offsets, lengths and scalar operands (SymInt, float, Scalar; optional ones;
/// lists of them). Axes, flags, modes, dtypes (int, bool, str, ScalarType, …)
/// are structure. Costs some pointer chasing: ask once an operator.
bool is_slot_argument(const c10::Argument& argument);

/// True iff a slot can have this value: int, double, bool or complex.
bool is_slot_value(const c10::IValue& value);

} // namespace temper::graph
