// Runs an artifact, forward and backward, as the runtime's callers do, and
// compares it with the reference run of the raw graph.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codegen/backend.h"
#include "graph/graph.h"
#include "runtime/artifact.h"
#include "support/raw_builder.h"

namespace temper::support {

/// `inputs` in the order of the graph, tangents included; `slots` in the
/// artifact's order.
RunResult run_artifact(
    const runtime::Artifact& artifact,
    const graph::Graph& raw,
    const std::vector<at::Tensor>& inputs,
    const std::vector<c10::IValue>& slots,
    const std::vector<c10::IValue>& objects = {});

/// Whether both runs gave the same bits, strides and, among outputs and
/// inputs, the same sharing of memory. `a_inputs` are what run `a` was given.
testing::AssertionResult same_results(
    const RunResult& a,
    const std::vector<at::Tensor>& a_inputs,
    const RunResult& b,
    const std::vector<at::Tensor>& b_inputs);

/// Compiles `raw` with the aten backend and compares two runs of it, on
/// equal copies of `inputs`, with the reference.
testing::AssertionResult compiled_equals_raw(
    const graph::Graph& raw,
    const std::vector<at::Tensor>& inputs,
    const codegen::BackendOptions& options = {});

/// The ops of this name in a program.
int count_instructions(
    const program::Program& program,
    const std::string& name);
/// copy_memory and copy_ instructions.
int count_copies(const program::Program& program);

} // namespace temper::support
