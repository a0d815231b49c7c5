// Definitions, views and equality of calls.
#include "passes/util.h"

#include <algorithm>

#include "ops/op_info.h"

namespace temper::passes {

using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::ValueId;

std::vector<int32_t> definitions(const Graph& graph) {
  std::vector<int32_t> result(graph.values.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    for (const ValueId id : graph.ops[i].results) {
      if (id != kNoValue) {
        result[index(id)] = static_cast<int32_t>(i);
      }
    }
    for (const graph::Write& write : graph.ops[i].writes) {
      if (write.result != kNoValue) {
        result[index(write.result)] = static_cast<int32_t>(i);
      }
    }
  }
  return result;
}

std::vector<ValueId> view_parents(const Graph& graph) {
  std::vector<ValueId> result(graph.values.size(), kNoValue);
  for (const Op& op : graph.ops) {
    const ops::OpInfo& info = ops::info(op.op);
    if (info.alias != ops::Alias::kView || !op.writes.empty()) {
      continue;
    }
    const Operand& operand = op.operands[index(info.alias_operand)];
    if (operand.kind != Operand::Kind::kValue) {
      continue;
    }
    for (const ValueId id : op.results) {
      if (id != kNoValue) {
        result[index(id)] = operand.value;
      }
    }
  }
  return result;
}

bool has_absolute_view(const Graph& graph) {
  return std::any_of(graph.ops.begin(), graph.ops.end(), [](const Op& op) {
    return ops::info(op.op).absolute_view;
  });
}

bool same_call(const Op& a, const Op& b) {
  if (!(a.op == b.op) || a.operands.size() != b.operands.size()) {
    return false;
  }
  for (size_t i = 0; i < a.operands.size(); ++i) {
    const Operand& x = a.operands[i];
    const Operand& y = b.operands[i];
    if (x.kind != y.kind || x.value != y.value || x.values != y.values ||
        x.slots != y.slots) {
      return false;
    }
    if (x.kind == Operand::Kind::kConstant &&
        (x.constant.type()->kind() != y.constant.type()->kind() ||
         !(x.constant == y.constant))) {
      return false;
    }
  }
  return true;
}

} // namespace temper::passes
