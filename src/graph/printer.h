// A graph as text: for people, logs and tests. `parse` reads it back exactly.
//
//   graph functional {
//     slot $0 = 8
//     object #0 = "generator" "default"
//     input %0 : f32[$0=8, 64](64, 1) argument "x"
//     input %1 : f32[32, 64](64, 1) parameter "fc.weight"
//     input %2 : f32[?8, 32](32, 1) tangent "y" of output 0
//     %3 : f32[64, 32](1, 64) = aten::t(%1)
//     %4 : f32[?8, 32](32, 1) = aten::mm(%0, %3)
//     %5 : f32[?8, 32](32, 1) = aten::relu_(%4) writes(0 -> %5)
//     return %5
//     mutate input 0 = %5 as output
//     segment tangents(2) {
//       %6 : f32[?8, 64](64, 1) = aten::mm(%2, %1)
//       deliver input 0 = %6
//     }
//   }
//
// Type: dtype [sizes] (strides seen) and then, where they apply, `on` device
// (if not cpu), `conj`, `neg`, `@` storage. Sizes: 64 constant, $0=8 slot 0,
// seen as 8; ?8 any, seen as 8. A type stands where its value is first defined.
// Operands: none, %value, [%value, none], $slot, $[slot, slot], #object, or a
// constant as `append_constant` writes it. Writes: operand or operand[element],
// then -> new content in the functional form. `//` begins a comment.
#pragma once

#include <string>

#include "graph/graph.h"

namespace temper::graph {

std::string print(const Graph& graph);

/// One op on one line, with the types of what it defines.
std::string print_op(const Graph& graph, int32_t op);

std::string print_type(const Type& type);

} // namespace temper::graph
