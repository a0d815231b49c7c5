// Dead code elimination on instructions.
//
// 1. Registers that may share memory are one class: an operand that the schema
//    gives an alias set, or of an operator with a result that is a register of
//    its operands, and all results. Too large a class only keeps too much.
// 2. Backwards: an instruction is kept if it has an effect, or if it defines a
//    register, or may write to memory, that is needed. What it reads is needed
//    then.
#include "program/prune.h"

#include <numeric>

#include "base/error.h"
#include "program/lowering.h"

namespace temper::program {

namespace {

// Which registers may share memory (union-find).
class MemoryClasses {
 public:
  explicit MemoryClasses(int32_t num_registers)
      : parents_(static_cast<size_t>(num_registers)) {
    std::iota(parents_.begin(), parents_.end(), 0);
  }

  Register find(Register r) {
    while (parents_[static_cast<size_t>(r)] != r) {
      r = parents_[static_cast<size_t>(r)];
    }
    return r;
  }

  void join(Register a, Register b) {
    parents_[static_cast<size_t>(find(a))] = find(b);
  }

 private:
  std::vector<Register> parents_;
};

template <class Visit>
void for_each_operand(const Instruction& instruction, Visit visit) {
  for (size_t i = 0; i < instruction.arguments.size(); ++i) {
    const Argument& argument = instruction.arguments[i];
    if (argument.kind == Argument::Kind::kRegister ||
        argument.kind == Argument::Kind::kRegisterList) {
      for (const Register r : argument.index) {
        if (r != kNoRegister) {
          visit(i, r);
        }
      }
    }
  }
}

// LibTorch's own operators with views or writes that the schema hides are few;
// that any operand may be viewed or written costs little but precision.
bool tells_all(const Instruction& instruction) {
  const std::string& name = instruction.op.schema().name();
  return name != "aten::_unsafe_view" && name != "aten::_reshape_alias" &&
      name != "aten::lift" && name.rfind("aten::unsafe_", 0) != 0 &&
      name.rfind("aten::", 0) == 0 &&
      name.find("batch_norm") == std::string::npos &&
      name.find("_rnn") == std::string::npos;
}

bool may_alias(const Instruction& instruction, size_t argument) {
  return !tells_all(instruction) ||
      instruction.op.schema().arguments()[argument].alias_info() != nullptr;
}

bool may_write(const Instruction& instruction, size_t argument) {
  const c10::AliasInfo* alias =
      instruction.op.schema().arguments()[argument].alias_info();
  return !tells_all(instruction) || (alias != nullptr && alias->isWrite());
}

} // namespace

Program prune(
    const Program& program,
    const std::vector<bool>& needed,
    HasEffect has_effect) {
  TEMPER_INTERNAL(needed.size() == program.outputs.size());
  MemoryClasses memory(program.num_registers);
  for (const Instruction& instruction : program.instructions) {
    for_each_operand(instruction, [&](size_t argument, Register operand) {
      if (may_alias(instruction, argument)) {
        for (const Register r : instruction.results) {
          if (r != kNoRegister) {
            memory.join(operand, r);
          }
        }
      }
    });
  }

  Program result = program;
  std::vector<bool> live(static_cast<size_t>(program.num_registers));
  const auto need = [&](Register r) {
    live[static_cast<size_t>(memory.find(r))] = true;
  };
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) {
      result.outputs[i] = kNoRegister;
    } else if (program.outputs[i] != kNoRegister) {
      need(program.outputs[i]);
    }
  }
  std::vector<bool> is_input(static_cast<size_t>(program.num_registers));
  for (Register r = 0; r < program.num_inputs; ++r) {
    is_input[static_cast<size_t>(memory.find(r))] = true;
  }
  std::vector<bool> keep(program.instructions.size());
  for (size_t i = program.instructions.size(); i-- > 0;) {
    const Instruction& instruction = program.instructions[i];
    bool wanted = has_effect(instruction.op);
    const auto is_live = [&](Register r) {
      return live[static_cast<size_t>(memory.find(r))];
    };
    for (const Register r : instruction.results) {
      wanted = wanted || (r != kNoRegister && is_live(r));
    }
    for_each_operand(instruction, [&](size_t argument, Register r) {
      const bool seen =
          is_live(r) || is_input[static_cast<size_t>(memory.find(r))];
      wanted = wanted || (seen && may_write(instruction, argument));
    });
    keep[i] = wanted;
    if (wanted) {
      for_each_operand(instruction, [&](size_t, Register r) { need(r); });
    }
  }
  result.instructions.clear();
  for (size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) {
      result.instructions.push_back(program.instructions[i]);
    }
  }
  find_last_uses(result);
  return result;
}

} // namespace temper::program
