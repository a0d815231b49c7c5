// Last reads and chains of writes.
#include "passes/liveness.h"

#include "ops/synthetic.h"
#include "passes/util.h"

namespace temper::passes {

using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::ValueId;

std::vector<int32_t> last_reads(const Graph& functional) {
  std::vector<int32_t> result(functional.values.size(), -1);
  const auto end = static_cast<int32_t>(functional.ops.size());
  for (int32_t i = 0; i < end; ++i) {
    const Op& op = functional.ops[index(i)];
    if (ops::is_write_through(op.op)) {
      result[index(op.operands[2].value)] = i;
      continue;
    }
    for (const graph::Operand& operand : op.operands) {
      for_each_value(operand, [&](ValueId id) { result[index(id)] = i; });
    }
  }
  for (const ValueId id : functional.outputs) {
    if (id != kNoValue) {
      result[index(id)] = end;
    }
  }
  for (const graph::Mutation& mutation : functional.mutations) {
    result[index(mutation.value)] = end;
  }
  return result;
}

namespace {

// The content that a write of `op` replaced by `value`, or kNoValue.
ValueId written_before(const Op& op, ValueId value) {
  for (const graph::Write& write : op.writes) {
    if (write.result == value) {
      return written_value(op, write);
    }
  }
  return kNoValue;
}

} // namespace

std::optional<std::vector<ValueId>> final_writes(
    const Graph& functional,
    const std::vector<int32_t>& definitions,
    const graph::Mutation& mutation) {
  const ValueId start = functional.inputs[index(mutation.input)].value;
  std::vector<ValueId> chain;
  ValueId value = mutation.value;
  while (value != start) {
    const int32_t at = definitions[index(value)];
    if (at < 0) {
      return std::nullopt;
    }
    chain.push_back(value);
    const Op& op = functional.ops[index(at)];
    if (!ops::is_write_through(op.op)) {
      value = written_before(op, value);
    } else {
      value = op.operands[0].value;
      // What was written to the view: by one write, or several in a row.
      for (ValueId content = op.operands[2].value; content != kNoValue;) {
        chain.push_back(content);
        const int32_t by = definitions[index(content)];
        content = by < 0 ? kNoValue
                         : written_before(functional.ops[index(by)], content);
      }
    }
    if (value == kNoValue) {
      return std::nullopt;
    }
  }
  return chain;
}

} // namespace temper::passes
