// A program as text: for logs and tests.
//
//   program (r0, r1) {
//     r2 = aten::addmm(r1, r0, r0, beta=1) ; free r1
//     return r2
//   }
#pragma once

#include <string>

#include "program/program.h"

namespace temper::program {

std::string print(const Program& program);

} // namespace temper::program
