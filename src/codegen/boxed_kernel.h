// The kernel of every operator that has no typed one: a boxed call.
#pragma once

#include "program/program.h"

namespace temper::codegen {

void run_boxed(const program::Instruction& instruction, program::Frame& frame);

} // namespace temper::codegen
