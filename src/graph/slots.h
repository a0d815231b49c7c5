// Which arguments of an operator are run-time scalars (slots) and which are
// structure.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <vector>

namespace temper::graph {

/// True iff what a call passes here is kept out of the skeleton: sizes,
/// offsets, lengths and scalar operands (SymInt, float, Scalar; optional ones;
/// lists of them). Axes, flags, modes, dtypes (int, bool, str, ScalarType, …)
/// are structure. Costs some pointer chasing: ask once an operator.
bool is_slot_argument(const c10::Argument& argument);

/// True iff a slot can have this value: int, double, bool or complex.
bool is_slot_value(const c10::IValue& value);

/// True iff the argument is a list of scalars of any kind (Scalar[]), for which
/// a list of ints or doubles is not taken.
bool is_scalar_list(const c10::Argument& argument);

/// The values of some slots (by their indices into `slots`) as an operator
/// takes them: as scalars, or all of the kind of the first.
c10::IValue list_of_slots(
    const std::vector<int32_t>& indices,
    const c10::IValue* slots,
    bool scalars);

} // namespace temper::graph
