// Which arguments of an operator are run-time scalars (slots) and which are
// structure.
#include "graph/slots.h"

#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <utility>

namespace temper::graph {

bool is_slot_argument(const c10::Argument& argument) {
  // The real type tells SymInt from int; `type()` has int for both.
  const c10::Type* type = argument.real_type().get();
  while (true) {
    switch (type->kind()) {
      case c10::TypeKind::OptionalType:
        type = type->expectRef<c10::OptionalType>().getElementType().get();
        break;
      case c10::TypeKind::ListType:
        type = type->expectRef<c10::ListType>().getElementType().get();
        break;
      case c10::TypeKind::SymIntType:
      case c10::TypeKind::SymFloatType:
      case c10::TypeKind::FloatType:
      case c10::TypeKind::NumberType:
        return true;
      default:
        return false;
    }
  }
}

bool is_slot_value(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool() ||
      value.isComplexDouble();
}

bool is_scalar_list(const c10::Argument& argument) {
  const c10::Type* type = argument.type().get();
  while (type->kind() == c10::TypeKind::OptionalType) {
    type = type->expectRef<c10::OptionalType>().getElementType().get();
  }
  return type->kind() == c10::TypeKind::ListType &&
      type->expectRef<c10::ListType>().getElementType()->kind() ==
      c10::TypeKind::NumberType;
}

c10::IValue list_of_slots(
    const std::vector<int32_t>& indices,
    const c10::IValue* slots,
    bool scalars) {
  const auto make = [&](auto list, auto element) {
    list.reserve(indices.size());
    for (const auto index : indices) {
      list.push_back(element(slots[index]));
    }
    return c10::IValue(std::move(list));
  };
  if (scalars) {
    return make(
        c10::List<at::Scalar>(), [](const auto& v) { return v.toScalar(); });
  }
  if (!indices.empty() && slots[indices[0]].isDouble()) {
    return make(
        c10::List<double>(), [](const auto& v) { return v.toDouble(); });
  }
  if (!indices.empty() && slots[indices[0]].isBool()) {
    return make(c10::List<bool>(), [](const auto& v) { return v.toBool(); });
  }
  return make(c10::List<int64_t>(), [](const auto& v) { return v.toInt(); });
}

} // namespace temper::graph
