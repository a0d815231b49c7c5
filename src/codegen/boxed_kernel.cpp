// Boxed calls on a stack that each thread reuses.
#include "codegen/boxed_kernel.h"

#include <ATen/core/List.h>
#include <ATen/core/stack.h>

#include <utility>

#include "base/thread_object.h"
#include "graph/slots.h"

namespace temper::codegen {

namespace {

using program::Argument;
using program::Frame;
using program::kNoRegister;
using program::Register;

// Takes the thread's stack and gives it back empty, also when the call throws.
// A call that runs a program itself finds an empty one.
class StackLoan {
 public:
  StackLoan() : stack_(std::exchange(spare(), {})) {}
  ~StackLoan() {
    stack_.clear();
    spare() = std::move(stack_);
  }
  StackLoan(const StackLoan&) = delete;
  StackLoan& operator=(const StackLoan&) = delete;

  torch::jit::Stack& operator*() {
    return stack_;
  }

 private:
  static torch::jit::Stack& spare() {
    return base::ThreadObject<torch::jit::Stack>::get();
  }

  torch::jit::Stack stack_;
};

at::Tensor tensor(const Frame& frame, Register r) {
  return r == kNoRegister ? at::Tensor()
                          : frame.registers[static_cast<size_t>(r)];
}

c10::IValue tensor_list(const Argument& argument, const Frame& frame) {
  if (argument.optional_elements) {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(argument.index.size());
    for (const Register r : argument.index) {
      list.push_back(
          r == kNoRegister ? std::optional<at::Tensor>() : tensor(frame, r));
    }
    return list;
  }
  c10::List<at::Tensor> list;
  list.reserve(argument.index.size());
  for (const Register r : argument.index) {
    list.push_back(tensor(frame, r));
  }
  return list;
}

c10::IValue boxed(const Argument& argument, const Frame& frame) {
  switch (argument.kind) {
    case Argument::Kind::kNone:
      return {};
    case Argument::Kind::kRegister:
      return tensor(frame, argument.single);
    case Argument::Kind::kRegisterList:
      return tensor_list(argument, frame);
    case Argument::Kind::kConstant:
      return argument.constant;
    case Argument::Kind::kSlot:
      return frame.slots[static_cast<size_t>(argument.single)];
    case Argument::Kind::kSlotList:
      return graph::list_of_slots(
          argument.index, frame.slots, argument.scalars);
    case Argument::Kind::kObject:
      return frame.objects[static_cast<size_t>(argument.single)];
  }
  return {};
}

} // namespace

void run_boxed(const program::Instruction& instruction, Frame& frame) {
  StackLoan loan;
  torch::jit::Stack& stack = *loan;
  for (const Argument& argument : instruction.arguments) {
    stack.push_back(boxed(argument, frame));
  }
  instruction.op.callBoxed(stack);
  size_t next = 0;
  const auto store = [&](at::Tensor result) {
    if (next < instruction.results.size()) {
      const Register r = instruction.results[next++];
      if (r != kNoRegister) {
        frame.registers[static_cast<size_t>(r)] = std::move(result);
      }
    }
  };
  for (c10::IValue& value : stack) {
    if (value.isTensor()) {
      store(std::move(value).toTensor());
    } else if (value.isTensorList()) {
      const c10::List<at::Tensor> list = std::move(value).toTensorList();
      for (size_t i = 0; i < list.size(); ++i) {
        store(list.get(i));
      }
    } else if (value.isNone()) {
      store(at::Tensor());
    }
  }
}

} // namespace temper::codegen
