// A program without what some of its outputs alone needed.
#pragma once

#include <vector>

#include "program/program.h"

namespace temper::program {

/// Which instructions must run whatever is needed of their results (those of
/// random numbers, impure ones): asked once an instruction.
using HasEffect = bool (*)(const c10::OperatorHandle& op);

/// The program that gives the outputs for which `needed` is true and undefined
/// tensors for the others. Inputs stay the same; writes to an input's memory,
/// and operators that have effects, are kept.
Program prune(
    const Program& program,
    const std::vector<bool>& needed,
    HasEffect has_effect);

} // namespace temper::program
