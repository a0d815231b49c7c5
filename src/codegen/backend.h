// Backends: what turns a graph into an artifact, by name.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/numerics.h"
#include "graph/graph.h"
#include "passes/partition.h"
#include "runtime/artifact.h"

namespace temper::codegen {

struct BackendOptions {
  passes::PartitionOptions partition;
  /// How far values may be from eager's: an upper bound. A backend may do
  /// better; "aten" gives eager's bits under each.
  Numerics numerics = Numerics::kAccurate;
  /// What is made of parameters and buffers may be kept: they stay as they are.
  /// "aten" makes nothing of them.
  bool freeze_weights = false;
};

/// Compiles a raw graph, forward or joint. The artifact takes the slots in the
/// canonical order of the graph's skeleton. Throws passes::Unsupported for a
/// graph that can only run eagerly.
using Backend = std::function<std::shared_ptr<const runtime::Artifact>(
    const graph::Graph& raw,
    const BackendOptions& options)>;

/// Thread-safe. Replaces a backend of that name, except the built-in ones.
void register_backend(const std::string& name, Backend backend);

/// The backend of this name, or an empty function. "aten" is built in.
Backend find_backend(std::string_view name);

/// Sorted.
std::vector<std::string> backend_names();

} // namespace temper::codegen
