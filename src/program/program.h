// The executable form: a flat list of instructions over registers.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace temper::program {

/// Index of a register: inputs first, then temporaries.
using Register = int32_t;
constexpr Register kNoRegister = -1;

/// What an instruction reads for one schema argument.
struct Argument {
  enum class Kind : uint8_t {
    kNone,
    kRegister,
    kRegisterList,
    kConstant,
    kSlot,
    kSlotList,
    kObject
  };
  Kind kind = Kind::kNone;
  std::vector<int32_t> index; ///< Registers, slots or the object.
  c10::IValue constant;
  // Decoded once, so that running an instruction need not:
  int32_t single = -1; ///< `index[0]` of a register, a slot or an object.
  std::vector<int64_t> ints; ///< The elements, if `constant` is an int list.
  /// A register list's elements may be undefined: the schema says Tensor?[].
  bool optional_elements = false;
  bool scalars = false; ///< A slot list is a Scalar[]: of several kinds.
};

struct Instruction;
struct Frame;

/// Runs one instruction on a frame: a typed call without boxing where the op
/// has one, else the boxed call.
using Kernel = void (*)(const Instruction&, Frame&);

struct Instruction {
  c10::OperatorHandle op;
  Kernel kernel = nullptr;
  std::vector<Argument> arguments; ///< In the order of the schema.
  /// Where the returned tensors go, flattened; kNoRegister drops one.
  std::vector<Register> results;
  /// Registers whose last use this is: emptied after the call.
  std::vector<Register> last_uses;
};

/// An immutable program, shared by threads. Runs below autograd.
struct Program {
  int32_t num_inputs = 0;
  int32_t num_registers = 0;
  std::vector<Instruction> instructions;
  std::vector<Register> outputs; ///< kNoRegister gives an undefined tensor.
};

/// The state of one run.
struct Frame {
  std::vector<at::Tensor> registers;
  const c10::IValue* slots = nullptr;
  const c10::IValue* objects = nullptr;
};

} // namespace temper::program
