// Which arguments of an operator are run-time scalars (slots) and which are
// structure.
#include "graph/slots.h"

#include <ATen/core/jit_type.h>

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

} // namespace temper::graph
