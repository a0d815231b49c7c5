// Runs a program.
#pragma once

#include <vector>

#include "program/program.h"

namespace temper::runtime {

/// Runs `program` on `inputs` (consumed: a register that holds the last
/// reference frees its memory at its last use). `slots` and `objects` are the
/// tables of the call. The caller sets grad, inference and dispatch-key state;
/// the run itself excludes the autograd and ADInplaceOrView keys. Exceptions of
/// ops pass through unchanged.
std::vector<at::Tensor> run(
    const program::Program& program,
    std::vector<at::Tensor> inputs,
    const c10::IValue* slots,
    const c10::IValue* objects);

} // namespace temper::runtime
