// A program as text: for logs and tests.
//
//   program (r0, r1) {
//     r2 = aten::slice.Tensor(r0, 0, $0, none, 1) ; free r0, r1
//     return r2
//   }
//
// Arguments in the order of the schema: registers, constants, $slots, #objects.
#pragma once

#include <string>

#include "program/program.h"

namespace temper::program {

std::string print(const Program& program);

} // namespace temper::program
