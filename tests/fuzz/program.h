// Random programs as data: a list of instructions over registers, its text, and
// the interpreter, which is what a trial compiles.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace temper::fuzz {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

/// A number in a program.
struct Number {
  enum class Kind : uint8_t {
    kInt,
    kReal,
    kSize, ///< `integer` + the size of register `reg` in dimension `dim`.
    kFactor, ///< The number that the call was given, times `real`.
  };
  Kind kind = Kind::kInt;
  int64_t integer = 0;
  double real = 0;
  int reg = -1;
  int64_t dim = 0;
};

/// One operator call.
struct Instruction {
  enum class Mode : uint8_t { kAsCalled, kNoGrad, kGrad };
  size_t op = 0; ///< Index into `all_ops()`.
  std::vector<int> operands; ///< Registers.
  std::vector<Number> numbers;
  std::vector<int> results; ///< Registers, each written once.
  Mode mode = Mode::kAsCalled;
};

/// Registers: arguments, then parameters, then buffers, then results.
struct Program {
  int num_arguments = 0;
  int num_parameters = 0;
  int num_buffers = 0;
  int num_registers = 0;
  std::vector<Instruction> code;
  std::vector<int> outputs;
};

/// What an instruction sees when it runs.
struct Call {
  const Instruction& now;
  const Tensors& registers;
  double factor;
  bool training;

  const Tensor& t(size_t i) const {
    return registers[static_cast<size_t>(now.operands.at(i))];
  }
  double x(size_t i) const {
    const Number& number = now.numbers.at(i);
    switch (number.kind) {
      case Number::Kind::kReal:
        return number.real;
      case Number::Kind::kFactor:
        return number.real * factor;
      default:
        return static_cast<double>(n(i));
    }
  }
  int64_t n(size_t i) const {
    const Number& number = now.numbers.at(i);
    return number.kind == Number::Kind::kSize
        ? registers[static_cast<size_t>(number.reg)].size(number.dim) +
            number.integer
        : number.integer;
  }
  bool flag(size_t i) const {
    return n(i) != 0;
  }
  torch::Dtype dtype(size_t i) const {
    return static_cast<torch::Dtype>(n(i));
  }
  /// All numbers from the `i`th on.
  std::vector<int64_t> list(size_t i) const {
    std::vector<int64_t> result;
    for (; i < now.numbers.size(); ++i) {
      result.push_back(n(i));
    }
    return result;
  }
  /// Integers as indices into dimension `dim` of the first operand.
  Tensor index(size_t operand, int64_t dim) const {
    return t(operand).remainder(t(0).size(dim));
  }
};

/// An operator of random programs.
struct OpDef {
  const char* name;
  /// How the generator chooses operands and numbers: see chooser.h.
  const char* signature;
  int weight; ///< How often, compared with others.
  Tensors (*run)(const Call&);
};

inline const std::vector<OpDef>& all_ops();

/// Runs one instruction.
inline void step(
    const Instruction& now,
    Tensors& registers,
    double factor,
    bool training) {
  std::optional<torch::AutoGradMode> mode;
  if (now.mode != Instruction::Mode::kAsCalled) {
    mode.emplace(now.mode == Instruction::Mode::kGrad);
  }
  Tensors results = all_ops()[now.op].run({now, registers, factor, training});
  for (size_t i = 0; i < std::min(results.size(), now.results.size()); ++i) {
    registers[static_cast<size_t>(now.results[i])] = std::move(results[i]);
  }
}

/// Runs a program on its arguments, parameters and buffers.
inline Tensors interpret(
    const Program& program,
    Tensors state,
    double factor,
    bool training) {
  state.resize(static_cast<size_t>(program.num_registers));
  for (const Instruction& now : program.code) {
    step(now, state, factor, training);
  }
  Tensors outputs;
  for (const int output : program.outputs) {
    outputs.push_back(state[static_cast<size_t>(output)]);
  }
  return outputs;
}

inline std::string text(const Number& number) {
  std::ostringstream out;
  switch (number.kind) {
    case Number::Kind::kInt:
      out << number.integer;
      break;
    case Number::Kind::kReal:
      out << number.real;
      break;
    case Number::Kind::kSize:
      out << '%' << number.reg << ".size(" << number.dim << ")";
      if (number.integer != 0) {
        out << " + " << number.integer;
      }
      break;
    case Number::Kind::kFactor:
      out << "factor * " << number.real;
      break;
  }
  return out.str();
}

/// "  %5 = add(%0, %3; 1.5)  [no_grad]", a line an instruction.
inline std::string text(const Program& program) {
  std::ostringstream out;
  const auto list = [&](const std::vector<int>& registers) {
    for (size_t i = 0; i < registers.size(); ++i) {
      out << (i == 0 ? "%" : ", %") << registers[i];
    }
  };
  for (const Instruction& now : program.code) {
    out << "  ";
    list(now.results);
    out << " = " << all_ops()[now.op].name << '(';
    list(now.operands);
    for (size_t i = 0; i < now.numbers.size(); ++i) {
      out << (i == 0 ? "; " : ", ") << text(now.numbers[i]);
    }
    out << ')';
    if (now.mode != Instruction::Mode::kAsCalled) {
      out
          << (now.mode == Instruction::Mode::kGrad ? "  [enable_grad]"
                                                   : "  [no_grad]");
    }
    out << '\n';
  }
  out << "  return ";
  list(program.outputs);
  out << '\n';
  return out.str();
}

} // namespace temper::fuzz
