// The mutants.
#include "passes/mutants.h"

#include <atomic>
#include <string>
#include <utility>

#include "base/error.h"
#include "graph/build.h"
#include "passes/test_hooks.h"
#include "passes/util.h"

namespace temper::passes::mutants {

using graph::Graph;
using graph::Op;
using graph::Operand;

bool change_activation(Graph& graph) {
  for (Op& op : graph.ops) {
    const std::string name = graph::op_name(op.op);
    if (name == "aten::gelu" || name == "aten::relu" || name == "aten::silu" ||
        name == "aten::tanh" || name == "aten::sigmoid") {
      op.op = graph::find_op(name == "aten::relu" ? "aten::abs" : "aten::relu");
      op.operands.resize(1);
      return true;
    }
  }
  return false;
}

bool drop_mutation(Graph& graph) {
  for (size_t i = graph.mutations.size(); i-- > 0;) {
    if (!graph.mutations[i].as_output) {
      graph.mutations.erase(
          graph.mutations.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
  }
  return false;
}

bool swap_deliveries(Graph& graph) {
  for (graph::Segment& segment : graph.segments) {
    for (size_t i = 1; i < segment.deliveries.size(); ++i) {
      if (segment.deliveries[i].value != segment.deliveries[0].value) {
        std::swap(segment.deliveries[i].value, segment.deliveries[0].value);
        return true;
      }
    }
  }
  return false;
}

bool freeze_slot(Graph& graph) {
  for (Op& op : graph.ops) {
    for (Operand& operand : op.operands) {
      if (operand.kind == Operand::Kind::kSlot) {
        operand = graph::constant_operand(graph.slots[index(operand.slots[0])]);
        return true;
      }
    }
  }
  return false;
}

bool skip_epilogue_copy(Graph& graph) {
  static const c10::OperatorHandle copy = graph::find_op("aten::copy_");
  for (size_t i = graph.ops.size(); i-- > 0;) {
    for (const graph::Mutation& mutation : graph.mutations) {
      const graph::Op& op = graph.ops[i];
      if (op.op == copy &&
          op.operands[0].value == graph.inputs[index(mutation.input)].value) {
        graph.ops.erase(graph.ops.begin() + static_cast<std::ptrdiff_t>(i));
        --graph.num_forward_ops;
        return true;
      }
    }
  }
  return false;
}

namespace {

std::atomic<bool (*)(Graph&)> active{nullptr};
std::atomic<int> num_changed{0};

void run_active(Graph& graph) {
  if (active.load()(graph)) {
    ++num_changed;
  }
}

} // namespace

Scope::Scope(bool (*mutant)(Graph&)) {
  TEMPER_INTERNAL(active.load() == nullptr, "one mutant at a time");
  num_changed = 0;
  active = mutant;
  (mutant == &skip_epilogue_copy ? test_hooks().placed
                                 : test_hooks().functional) = &run_active;
}

Scope::~Scope() {
  test_hooks().placed = nullptr;
  test_hooks().functional = nullptr;
  active = nullptr;
}

int Scope::changed() {
  return num_changed;
}

} // namespace temper::passes::mutants
