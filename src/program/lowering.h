// Raw graph of one program -> program.
//
// Register i is input i; each other object of the graph has a register of its
// own. A register is emptied by the instruction that uses it last. Instructions
// are the graph's ops in their order.
#pragma once

#include "graph/graph.h"
#include "program/program.h"

namespace temper::program {

/// Chooses the kernel of an op.
using KernelFor = Kernel (*)(const c10::OperatorHandle& op);

Program lower(const graph::Graph& raw, KernelFor kernel_for);

/// Sets `last_uses` of all instructions anew.
void find_last_uses(Program& program);

} // namespace temper::program
