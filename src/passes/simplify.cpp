// Aliases first, then dead code, each in one sweep.
#include "passes/simplify.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"
#include "passes/util.h"

namespace temper::passes {

namespace {

using graph::Delivery;
using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::ValueId;

// Values that leave the graph: they are objects of their own.
std::vector<bool> find_leaving(const Graph& graph) {
  std::vector<bool> leaving(graph.values.size());
  const auto see = [&](ValueId id) {
    if (id != kNoValue) {
      leaving[index(id)] = true;
    }
  };
  for (const ValueId id : graph.outputs) {
    see(id);
  }
  for (const graph::Mutation& mutation : graph.mutations) {
    see(mutation.value);
  }
  for (const graph::Segment& segment : graph.segments) {
    for (const Delivery& delivery : segment.deliveries) {
      see(delivery.value);
    }
  }
  return leaving;
}

// What an op's only result is equal to, if the op does nothing.
ValueId same_value(const Op& op) {
  static const c10::OperatorHandle alias = graph::find_op("aten::alias");
  static const c10::OperatorHandle detach = graph::find_op("aten::detach");
  if (op.op == alias || op.op == detach) {
    return op.operands[0].value;
  }
  if (ops::is_write_through(op.op) &&
      op.operands[0].value == op.operands[1].value) {
    return op.operands[2].value; // all of the base was written
  }
  return kNoValue;
}

// Keeps the ops for which `keep` is true and moves the ranges along.
void keep_ops(Graph& graph, const std::vector<bool>& keep) {
  std::vector<int32_t> moved(graph.ops.size() + 1);
  std::vector<Op> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    moved[i] = static_cast<int32_t>(ops.size());
    if (keep[i]) {
      ops.push_back(std::move(graph.ops[i]));
    }
  }
  moved.back() = static_cast<int32_t>(ops.size());
  graph.ops = std::move(ops);
  graph.num_forward_ops = moved[index(graph.num_forward_ops)];
  for (graph::Segment& segment : graph.segments) {
    segment.first_op = moved[index(segment.first_op)];
    segment.end_op = moved[index(segment.end_op)];
  }
}

void remove_aliases(Graph& graph) {
  const std::vector<bool> leaving = find_leaving(graph);
  std::vector<ValueId> same(graph.values.size(), kNoValue);
  std::vector<bool> keep(graph.ops.size(), true);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    Op& op = graph.ops[i];
    for (Operand& operand : op.operands) {
      for_each_value(operand, [&](ValueId& id) {
        id = same[index(id)] == kNoValue ? id : same[index(id)];
      });
    }
    const ValueId source = same_value(op);
    if (source != kNoValue && op.results[0] != kNoValue &&
        !leaving[index(op.results[0])]) {
      same[index(op.results[0])] = source;
      keep[i] = false;
    }
  }
  keep_ops(graph, keep);
}

void remove_dead(Graph& graph) {
  std::vector<bool> live = find_leaving(graph);
  std::vector<bool> keep(graph.ops.size());
  for (size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    bool needed = !ops::info(op.op).droppable;
    for (const ValueId id : op.results) {
      needed = needed || (id != kNoValue && live[index(id)]);
    }
    for (const graph::Write& write : op.writes) {
      needed =
          needed || (write.result != kNoValue && live[index(write.result)]);
    }
    keep[i] = needed;
    if (needed) {
      for (const Operand& operand : op.operands) {
        for_each_value(operand, [&](ValueId id) { live[index(id)] = true; });
      }
    }
  }
  keep_ops(graph, keep);
}

} // namespace

Graph simplify(const Graph& functional) {
  TEMPER_INTERNAL(functional.form == graph::Form::kFunctional);
  Graph graph = functional;
  remove_aliases(graph);
  remove_dead(graph);
  return graph;
}

} // namespace temper::passes
