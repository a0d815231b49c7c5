// Runs a program: instructions in order, registers emptied at their last use.
#include "runtime/executor.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "base/error.h"

namespace temper::runtime {

std::vector<at::Tensor> run(
    const program::Program& program,
    std::vector<at::Tensor> inputs,
    const c10::IValue* slots,
    const c10::IValue* objects) {
  TEMPER_INTERNAL(
      inputs.size() == static_cast<size_t>(program.num_inputs),
      "a program of ",
      program.num_inputs,
      " inputs was given ",
      inputs.size());
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  program::Frame frame{std::move(inputs), slots, objects};
  std::vector<at::Tensor>& registers = frame.registers;
  registers.resize(static_cast<size_t>(program.num_registers));
  for (const program::Instruction& instruction : program.instructions) {
    instruction.kernel(instruction, frame);
    for (const program::Register r : instruction.last_uses) {
      registers[static_cast<size_t>(r)].reset();
    }
  }
  std::vector<at::Tensor> outputs;
  outputs.reserve(program.outputs.size());
  for (const program::Register r : program.outputs) {
    if (r == program::kNoRegister) {
      outputs.emplace_back();
    } else {
      outputs.push_back(registers[static_cast<size_t>(r)]);
    }
  }
  return outputs;
}

} // namespace temper::runtime
