// Lowering: registers for objects, arguments decoded as far as possible.
#include "program/lowering.h"

#include <algorithm>

#include "base/error.h"
#include "graph/slots.h"

namespace temper::program {

namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Operand;
using graph::ValueId;

class Lowering {
 public:
  explicit Lowering(const Graph& graph)
      : graph_(graph), registers_(graph.values.size(), kNoRegister) {}

  Program run(KernelFor kernel_for) {
    TEMPER_INTERNAL(graph_.form == graph::Form::kRaw);
    for (const graph::Input& input : graph_.inputs) {
      registers_[static_cast<size_t>(input.value)] = next_++;
    }
    program_.num_inputs = next_;
    for (const graph::Op& op : graph_.ops) {
      Instruction instruction{op.op, kernel_for(op.op), {}, {}, {}};
      for (size_t i = 0; i < op.operands.size(); ++i) {
        instruction.arguments.push_back(argument(op, i));
      }
      for (const ValueId id : op.results) {
        instruction.results.push_back(define(id));
      }
      program_.instructions.push_back(std::move(instruction));
    }
    for (const ValueId id : graph_.outputs) {
      program_.outputs.push_back(use(id));
    }
    program_.num_registers = next_;
    find_last_uses(program_);
    return std::move(program_);
  }

 private:
  Register use(ValueId id) const {
    if (id == kNoValue) {
      return kNoRegister;
    }
    const Register result = registers_[static_cast<size_t>(id)];
    TEMPER_INTERNAL(
        result != kNoRegister, "%", id, " is used before its definition");
    return result;
  }

  Register define(ValueId id) {
    if (id == kNoValue) {
      return kNoRegister;
    }
    Register& result = registers_[static_cast<size_t>(id)];
    if (result == kNoRegister) {
      result = next_++;
    }
    return result;
  }

  Argument argument(const graph::Op& op, size_t i) const {
    const Operand& operand = op.operands[i];
    Argument result;
    switch (operand.kind) {
      case Operand::Kind::kNone:
        break;
      case Operand::Kind::kValue:
        if (operand.value != kNoValue) {
          result.kind = Argument::Kind::kRegister;
          result.index = {use(operand.value)};
        }
        break;
      case Operand::Kind::kValueList: {
        result.kind = Argument::Kind::kRegisterList;
        for (const ValueId id : operand.values) {
          result.index.push_back(use(id));
        }
        const c10::TypePtr& type = op.op.schema().arguments()[i].type();
        result.optional_elements = type->kind() == c10::TypeKind::ListType &&
            type->expectRef<c10::ListType>().getElementType()->kind() ==
                c10::TypeKind::OptionalType;
        break;
      }
      case Operand::Kind::kConstant:
        result.kind = Argument::Kind::kConstant;
        result.constant = operand.constant;
        if (operand.constant.isIntList()) {
          result.ints = operand.constant.toIntVector();
        }
        break;
      case Operand::Kind::kSlot:
        result.kind = Argument::Kind::kSlot;
        result.index = operand.slots;
        break;
      case Operand::Kind::kSlotList:
        result.kind = Argument::Kind::kSlotList;
        result.index = operand.slots;
        result.scalars = graph::is_scalar_list(op.op.schema().arguments()[i]);
        break;
      case Operand::Kind::kObject:
        result.kind = Argument::Kind::kObject;
        result.index = operand.slots;
        break;
    }
    if (result.index.size() == 1) {
      result.single = result.index[0];
    }
    return result;
  }

  const Graph& graph_;
  Program program_;
  std::vector<Register> registers_; // by value
  Register next_ = 0;
};

bool reads_registers(const Argument& argument) {
  return argument.kind == Argument::Kind::kRegister ||
      argument.kind == Argument::Kind::kRegisterList;
}

} // namespace

void find_last_uses(Program& program) {
  std::vector<bool> used(static_cast<size_t>(program.num_registers));
  const auto see = [&](Register r) {
    const bool first = r != kNoRegister && !used[static_cast<size_t>(r)];
    if (first) {
      used[static_cast<size_t>(r)] = true;
    }
    return first;
  };
  for (const Register r : program.outputs) {
    see(r);
  }
  for (size_t i = program.instructions.size(); i-- > 0;) {
    Instruction& instruction = program.instructions[i];
    instruction.last_uses.clear();
    for (Register& r : instruction.results) {
      if (see(r)) {
        // Nobody reads it. An operand that is written and returned is dropped
        // as an operand below.
        instruction.last_uses.push_back(r);
      }
    }
    for (const Argument& argument : instruction.arguments) {
      if (reads_registers(argument)) {
        for (const Register r : argument.index) {
          if (see(r)) {
            instruction.last_uses.push_back(r);
          }
        }
      }
    }
  }
  if (!program.instructions.empty()) {
    for (Register r = 0; r < program.num_inputs; ++r) {
      if (see(r)) {
        program.instructions.front().last_uses.push_back(r);
      }
    }
  }
}

Program lower(const Graph& raw, KernelFor kernel_for) {
  return Lowering(raw).run(kernel_for);
}

} // namespace temper::program
