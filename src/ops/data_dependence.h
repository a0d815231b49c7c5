// Which calls of an operator have results whose sizes, or that themselves, can
// be told from data only.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace temper::ops {

/// Whether some calls of the operator do.
bool may_depend_on_data(const c10::OperatorHandle& op);

/// Whether this call of an operator that may does. `arguments` points to all
/// arguments, in the order of the schema.
bool depends_on_data(
    const c10::OperatorHandle& op,
    const c10::IValue* arguments);

} // namespace temper::ops
