// Printing of programs.
#include "program/print.h"

#include <sstream>

#include "graph/build.h"

namespace temper::program {

namespace {

void print_register(std::ostream& out, Register r) {
  if (r == kNoRegister) {
    out << "none";
  } else {
    out << 'r' << r;
  }
}

void print_registers(std::ostream& out, const std::vector<Register>& list) {
  const char* separator = "";
  for (const Register r : list) {
    out << separator;
    print_register(out, r);
    separator = ", ";
  }
}

void print_argument(std::ostream& out, const Argument& argument) {
  switch (argument.kind) {
    case Argument::Kind::kNone:
      out << "none";
      break;
    case Argument::Kind::kRegister:
      print_register(out, argument.single);
      break;
    case Argument::Kind::kRegisterList:
      out << '[';
      print_registers(out, argument.index);
      out << ']';
      break;
    case Argument::Kind::kConstant:
      out << argument.constant;
      break;
    case Argument::Kind::kSlot:
      out << '$' << argument.single;
      break;
    case Argument::Kind::kSlotList: {
      out << "$[";
      const char* separator = "";
      for (const int32_t slot : argument.index) {
        out << separator << slot;
        separator = ", ";
      }
      out << ']';
      break;
    }
    case Argument::Kind::kObject:
      out << '#' << argument.single;
      break;
  }
}

} // namespace

std::string print(const Program& program) {
  std::ostringstream out;
  out << "program (";
  const char* separator = "";
  for (Register r = 0; r < program.num_inputs; ++r) {
    out << separator << 'r' << r;
    separator = ", ";
  }
  out << ") {\n";
  for (const Instruction& instruction : program.instructions) {
    out << "  ";
    print_registers(out, instruction.results);
    out << (instruction.results.empty() ? "" : " = ")
        << graph::op_name(instruction.op) << '(';
    separator = "";
    for (const Argument& argument : instruction.arguments) {
      out << separator;
      print_argument(out, argument);
      separator = ", ";
    }
    out << ')';
    if (!instruction.last_uses.empty()) {
      out << " ; free ";
      print_registers(out, instruction.last_uses);
    }
    out << '\n';
  }
  out << (program.outputs.empty() ? "  return" : "  return ");
  print_registers(out, program.outputs);
  out << "\n}\n";
  return out.str();
}

} // namespace temper::program
