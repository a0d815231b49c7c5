// Passes, then lowering of the forward and of each segment.
#include "codegen/compile_aten.h"

#include <utility>

#include "base/log.h"
#include "codegen/typed_kernels.h"
#include "graph/skeleton.h"
#include "passes/pipeline.h"
#include "program/lowering.h"
#include "program/print.h"

namespace temper::codegen {

namespace {

std::shared_ptr<const program::Program> lower_part(
    const graph::Graph& graph,
    const char* part) {
  auto result = std::make_shared<const program::Program>(
      program::lower(graph, &kernel_for));
  TEMPER_LOG(kProgram, part, ":\n", program::print(*result));
  return result;
}

// In the canonical order all graphs of a skeleton have the same slots.
void renumber_slots(graph::Graph& graph, const graph::Skeleton& skeleton) {
  const auto renumber = [&](int32_t& slot) {
    slot = skeleton.canonical_slot[static_cast<size_t>(slot)];
  };
  for (graph::Value& value : graph.values) {
    for (graph::Dim& dim : value.type.sizes) {
      if (dim.kind == graph::Dim::Kind::kSlot) {
        renumber(dim.slot);
      }
    }
  }
  for (graph::Op& op : graph.ops) {
    for (graph::Operand& operand : op.operands) {
      if (operand.kind == graph::Operand::Kind::kSlot ||
          operand.kind == graph::Operand::Kind::kSlotList) {
        for (int32_t& slot : operand.slots) {
          renumber(slot);
        }
      }
    }
  }
  graph.slots = skeleton.slots;
}

runtime::Saved saved(const passes::SavedValue& value) {
  return {
      static_cast<runtime::Saved::Kind>(value.kind),
      value.index,
      value.shares_output,
      value.only_views};
}

} // namespace

std::shared_ptr<const runtime::Artifact> compile_aten(
    const graph::Graph& raw,
    const BackendOptions& options) {
  const graph::Skeleton skeleton = graph::skeleton(raw);
  graph::Graph numbered = raw;
  renumber_slots(numbered, skeleton);
  passes::Partition parts = passes::run_pipeline(numbered, {options.partition});

  auto artifact = std::make_shared<runtime::Artifact>();
  artifact->hash = skeleton.hash.hex();
  artifact->forward = lower_part(parts.forward, "forward");
  artifact->num_outputs = parts.num_outputs;
  for (const passes::SavedValue& value : parts.saved) {
    artifact->saved.push_back(saved(value));
  }
  for (passes::SegmentGraph& segment : parts.segments) {
    artifact->segments.push_back(
        {lower_part(segment.graph, "backward segment"),
         std::move(segment.saved),
         std::move(segment.carried_in),
         std::move(segment.carried_out)});
  }
  artifact->num_carried = parts.num_carried;
  return artifact;
}

} // namespace temper::codegen
