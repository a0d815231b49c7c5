// Checks one op of a graph against the schema of its operator.
#include "graph/schema_check.h"

#include <ATen/core/function_schema.h>
#include <ATen/core/jit_type.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "graph/printer.h"
#include "graph/slots.h"

namespace temper::graph {

namespace {

using c10::TypeKind;

// What one schema argument takes.
struct Expected {
  TypeKind kind; ///< Of the argument, or of its elements if it is a list.
  bool list = false;
  bool optional = false;
};

Expected expected(const c10::Argument& argument) {
  const c10::Type* type = argument.real_type().get();
  Expected result{type->kind()};
  // Tensor?[] has the optional inside of the list.
  while (true) {
    result.kind = type->kind();
    if (result.kind == TypeKind::OptionalType) {
      result.optional = result.optional || !result.list;
      type = type->expectRef<c10::OptionalType>().getElementType().get();
    } else if (result.kind == TypeKind::ListType && !result.list) {
      result.list = true;
      type = type->expectRef<c10::ListType>().getElementType().get();
    } else {
      return result;
    }
  }
}

// A scalar, given as a slot or as a constant, for a slot argument.
bool fits_slot_kind(const c10::IValue& value, TypeKind kind) {
  switch (kind) {
    case TypeKind::SymIntType:
      return value.isInt();
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      return value.isDouble();
    default:
      return is_slot_value(value);
  }
}

bool constant_fits(const c10::IValue& value, TypeKind kind) {
  switch (kind) {
    case TypeKind::SymIntType:
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
    case TypeKind::NumberType:
      return fits_slot_kind(value, kind);
    case TypeKind::IntType:
    case TypeKind::ScalarTypeType:
    case TypeKind::LayoutType:
    case TypeKind::MemoryFormatType:
    case TypeKind::QSchemeType:
      return value.isInt();
    case TypeKind::BoolType:
    case TypeKind::SymBoolType:
      return value.isBool();
    case TypeKind::StringType:
      return value.isString();
    case TypeKind::DeviceObjType:
      return value.isDevice();
    case TypeKind::ComplexType:
      return value.isComplexDouble();
    default:
      return false;
  }
}

bool fits(
    const Graph& graph,
    const Operand& operand,
    const c10::Argument& argument) {
  const Expected want = expected(argument);
  const bool tensor = want.kind == TypeKind::TensorType;
  const auto slot_fits = [&](int32_t slot) {
    return fits_slot_kind(graph.slots[static_cast<size_t>(slot)], want.kind);
  };
  switch (operand.kind) {
    case Operand::Kind::kNone:
      // An undefined tensor may stand for any.
      return want.optional || (tensor && !want.list);
    case Operand::Kind::kValue:
      return tensor && !want.list && operand.value != kNoValue;
    case Operand::Kind::kValueList:
      return tensor && want.list;
    case Operand::Kind::kConstant:
      if (want.list != operand.constant.isList()) {
        return false;
      }
      if (!want.list) {
        return constant_fits(operand.constant, want.kind);
      }
      for (const c10::IValue& element : operand.constant.toListRef()) {
        if (!constant_fits(element, want.kind)) {
          return false;
        }
      }
      return true;
    case Operand::Kind::kSlot:
      return is_slot_argument(argument) && !want.list &&
          slot_fits(operand.slots[0]);
    case Operand::Kind::kSlotList:
      return is_slot_argument(argument) && want.list &&
          std::all_of(operand.slots.begin(), operand.slots.end(), slot_fits);
    case Operand::Kind::kObject:
      // Generators, streams, storages, script objects.
      return !tensor && !is_slot_argument(argument) && !want.list &&
          !constant_fits(0, want.kind) && !constant_fits(false, want.kind) &&
          want.kind != TypeKind::StringType &&
          want.kind != TypeKind::DeviceObjType;
  }
  return false;
}

std::string text_of(const Graph& graph, const Operand& operand) {
  switch (operand.kind) {
    case Operand::Kind::kNone:
      return "none";
    case Operand::Kind::kValue:
      return "a tensor";
    case Operand::Kind::kValueList:
      return "a tensor list";
    case Operand::Kind::kConstant:
      return "a constant " + operand.constant.tagKind();
    case Operand::Kind::kSlot:
      return "a slot of kind " +
          graph.slots[static_cast<size_t>(operand.slots[0])].tagKind();
    case Operand::Kind::kSlotList:
      return "a list of slots";
    case Operand::Kind::kObject:
      return "an object";
  }
  return "nothing known";
}

std::string result_mismatch(const Op& op, const c10::FunctionSchema& schema) {
  size_t tensors = 0;
  bool lists = false;
  for (const c10::Argument& result : schema.returns()) {
    const Expected want = expected(result);
    if (want.kind == TypeKind::TensorType) {
      lists = lists || want.list;
      tensors += want.list ? 0 : 1;
    }
  }
  const size_t found = op.results.size();
  if (lists ? found < tensors : found != tensors) {
    return c10::str(
        "has ",
        found,
        " results, expected ",
        lists ? "at least " : "",
        tensors,
        " (",
        schema,
        ")");
  }
  return "";
}

bool is_written(const Op& op, size_t operand, int32_t element) {
  return std::any_of(
      op.writes.begin(), op.writes.end(), [&](const Write& write) {
        return static_cast<size_t>(write.operand) == operand &&
            write.element == element;
      });
}

std::string write_mismatch(const Op& op, const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.alias_info() == nullptr || !argument.alias_info()->isWrite()) {
      continue;
    }
    const Operand& operand = op.operands[i];
    const auto missing = [&](const std::string& which) {
      return c10::str(
          "operand ",
          i,
          " (",
          argument.name(),
          ")",
          which,
          " is written, says the schema, but is not in `writes`");
    };
    if (operand.kind == Operand::Kind::kValue && !is_written(op, i, -1)) {
      return missing("");
    }
    for (size_t j = 0; j < operand.values.size(); ++j) {
      if (operand.values[j] != kNoValue &&
          !is_written(op, i, static_cast<int32_t>(j))) {
        return missing(c10::str("[", j, "]"));
      }
    }
  }
  return "";
}

// The id that a result must have because the schema returns, under the alias
// set `returned`, what it wrote: the operand itself (raw) or its new content.
ValueId returned_self(
    const Graph& graph,
    const Op& op,
    const c10::FunctionSchema& schema,
    const c10::AliasInfo& returned) {
  for (const Write& write : op.writes) {
    const size_t i = static_cast<size_t>(write.operand);
    const c10::AliasInfo* const info = schema.arguments()[i].alias_info();
    if (info != nullptr && info->isWrite() && write.element < 0 &&
        info->beforeSets() == returned.beforeSets()) {
      return graph.form == Form::kRaw ? op.operands[i].value : write.result;
    }
  }
  return kNoValue;
}

std::string self_mismatch(
    const Graph& graph,
    const Op& op,
    const c10::FunctionSchema& schema) {
  size_t result = 0;
  for (const c10::Argument& each : schema.returns()) {
    const Expected want = expected(each);
    if (want.kind != TypeKind::TensorType) {
      continue;
    }
    if (want.list) {
      return ""; // From here on positions are not known.
    }
    const ValueId found = op.results[result++];
    if (each.alias_info() == nullptr || !each.alias_info()->isWrite()) {
      continue;
    }
    const ValueId self = returned_self(graph, op, schema, *each.alias_info());
    if (self != kNoValue && found != self) {
      return c10::str(
          "result ",
          result - 1,
          " is %",
          found,
          ", expected %",
          self,
          graph.form == Form::kRaw ? ": it returns the operand it wrote"
                                   : ": it returns what it wrote");
    }
  }
  return "";
}

} // namespace

std::string schema_mismatch(const Graph& graph, const Op& op) {
  if (!op.op.hasSchema()) {
    return "the operator has no schema";
  }
  const c10::FunctionSchema& schema = op.op.schema();
  const auto& arguments = schema.arguments();
  if (op.operands.size() != arguments.size()) {
    return c10::str(
        "has ",
        op.operands.size(),
        " operands, expected ",
        arguments.size(),
        " (",
        schema,
        ")");
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!fits(graph, op.operands[i], arguments[i])) {
      return c10::str(
          "operand ",
          i,
          " (",
          arguments[i].name(),
          ") is ",
          text_of(graph, op.operands[i]),
          ", expected ",
          arguments[i].real_type()->str());
    }
  }
  std::string found = result_mismatch(op, schema);
  if (found.empty()) {
    found = write_mismatch(op, schema);
  }
  if (found.empty()) {
    found = self_mismatch(graph, op, schema);
  }
  return found;
}

} // namespace temper::graph
