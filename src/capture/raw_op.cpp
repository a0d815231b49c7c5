// Calling one op of a raw graph.
#include "capture/raw_op.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <optional>

#include "graph/slots.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::Operand;

c10::IValue argument_of(
    const graph::Graph& graph,
    const Operand& operand,
    const c10::Argument& schema,
    ValueOf value_of) {
  switch (operand.kind) {
    case Operand::Kind::kNone:
      return {};
    case Operand::Kind::kValue:
      return value_of(operand.value);
    case Operand::Kind::kValueList: {
      auto type = schema.type();
      if (auto optional = type->cast<c10::OptionalType>()) {
        type = optional->getElementType();
      }
      const bool optional_elements =
          type->castRaw<c10::ListType>()->getElementType()->kind() ==
          c10::TypeKind::OptionalType;
      if (optional_elements) {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto id : operand.values) {
          list.push_back(
              id == kNoValue ? std::optional<at::Tensor>()
                             : std::optional<at::Tensor>(value_of(id)));
        }
        return list;
      }
      std::vector<at::Tensor> list;
      for (const auto id : operand.values) {
        list.push_back(id == kNoValue ? at::Tensor() : value_of(id));
      }
      return list;
    }
    case Operand::Kind::kConstant:
      return operand.constant;
    case Operand::Kind::kSlot:
      return graph.slots[static_cast<size_t>(operand.slots[0])];
    case Operand::Kind::kSlotList:
      return graph::list_of_slots(
          operand.slots, graph.slots.data(), graph::is_scalar_list(schema));
    case Operand::Kind::kObject:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "an object operand can't be replayed");
}

void flatten(const c10::IValue& value, std::vector<at::Tensor>& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      out.push_back(tensor);
    }
  }
}

} // namespace

std::vector<at::Tensor> call_raw_op(
    const graph::Graph& graph,
    const graph::Op& op,
    ValueOf value_of) {
  const auto& schema = op.op.schema();
  torch::jit::Stack stack;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    stack.push_back(
        argument_of(graph, op.operands[i], schema.arguments()[i], value_of));
  }
  op.op.callBoxed(stack);
  std::vector<at::Tensor> results;
  for (const auto& value : stack) {
    flatten(value, results);
  }
  return results;
}

std::vector<at::Tensor> run_raw_op(
    const graph::Graph& graph,
    const graph::Op& op,
    ValueOf value_of) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::autocast_dispatch_keyset);
  return call_raw_op(graph, op, value_of);
}

} // namespace temper::capture
