// The recorder. For each op:
//  1. composite ops that reach us whole (inference mode) are decomposed;
//  2. its operands are resolved to values: known tensors, arguments and watched
//     tensors (which become graph inputs), numbers, small literals;
//  3. the op runs for real;
//  4. its results become values: the operand itself, a view of a known storage,
//     or new memory.
#include "capture/recorder.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <numeric>

#include "ops/data_dependence.h"
#include "ops/hidden_writes.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::Operand;
using graph::ValueId;

int64_t versions_of(c10::ArrayRef<at::Tensor> tensors) {
  return std::accumulate(
      tensors.begin(),
      tensors.end(),
      int64_t{0},
      [](int64_t sum, const at::Tensor& tensor) {
        return sum + (tensor.is_inference() ? 0 : tensor._version());
      });
}

template <typename F>
void for_each_tensor(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      f(element.isTensor() ? element.toTensor() : at::Tensor());
    }
  }
}

} // namespace

Recorder::Recorder(
    std::vector<at::Tensor> arguments,
    std::vector<std::string> argument_names,
    FindWatched find_watched)
    : arguments_(std::move(arguments)),
      names_(std::move(argument_names)),
      argument_inputs_(arguments_.size(), -1),
      find_watched_(std::move(find_watched)),
      ledger_(trace_),
      generator_(GeneratorState::current()),
      task_(torch::autograd::get_current_graph_task_id()),
      first_sequence_number_(at::sequence_number::peek()) {
  std::copy_if(
      arguments_.begin(),
      arguments_.end(),
      std::back_inserter(own_arguments_),
      [&](const at::Tensor& argument) {
        return argument.defined() && !find_watched_(argument);
      });
}

void Recorder::fail(const std::string& reason) {
  if (!failed()) {
    trace_.unsupported = reason;
    if (!place_.empty()) {
      trace_.unsupported += " (" + place_ + ")";
    }
  }
}

bool Recorder::generator_touched() const {
  return !(GeneratorState::current() == generator_);
}

void Recorder::resume() {
  for (const auto& argument : own_arguments_) {
    watch_memory(argument);
  }
  for (const auto& result : results_) {
    if (const auto storage = result.lock()) {
      raw_.watch({storage});
    }
  }
  raw_.resume();
}

void Recorder::pause() {
  raw_.pause();
  release_memory(own_arguments_);
  release_memory(entered_);
  entered_.clear();
  for (const auto& result : results_) {
    if (const auto storage = result.lock()) {
      raw_.release(storage.get());
    }
  }
  if (raw_.seen()) {
    fail(kRawAccess);
  }
}

void Recorder::enter(const at::Tensor& tensor) {
  if (tensor.defined()) {
    watch_memory(tensor);
    entered_.push_back(tensor);
  }
}

void Recorder::watch_memory(const at::Tensor& tensor) {
  if (is_recordable(tensor)) {
    raw_.watch({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        tensor.storage().unsafeGetStorageImpl())});
  }
}

void Recorder::release_memory(c10::ArrayRef<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && is_recordable(tensor)) {
      raw_.release(tensor.storage().unsafeGetStorageImpl());
    }
  }
}

bool Recorder::is_uninitialised(ValueId value) const {
  const auto number =
      static_cast<size_t>(trace_.values[static_cast<size_t>(value)].storage);
  return uninitialised_by_[number] >= 0 && !trace_.storages[number].written;
}

// Watched tensors are left out: other threads may use them at any time. So is
// what is uninitialised: `torch::tensor({1, 2})` fills it from outside.
void Recorder::watch_values(const graph::Op& op) {
  c10::SmallVector<RawAccess::Storage, 8> storages;
  const auto add = [&](ValueId value) {
    if (value == kNoValue || is_uninitialised(value)) {
      return;
    }
    const auto number = trace_.values[static_cast<size_t>(value)].storage;
    const auto input = trace_.storages[static_cast<size_t>(number)].input;
    if (input >= 0 &&
        trace_.bindings[static_cast<size_t>(input)].watched != nullptr) {
      return;
    }
    if (auto storage = ledger_.storage(number)) {
      storages.push_back(std::move(storage));
    }
  };
  for (const auto& operand_in : op.operands) {
    add(operand_in.value);
    std::for_each(operand_in.values.begin(), operand_in.values.end(), add);
  }
  std::for_each(op.results.begin(), op.results.end(), add);
  raw_.watch(storages);
}

void Recorder::end_call(const std::vector<at::Tensor>& results) {
  ended_ = true;
  for (const auto& result : results) {
    if (result.defined() && is_recordable(result)) {
      results_.push_back(result.storage().getWeakStorageImpl());
    }
  }
  release_memory(results);
  for (size_t i = 0; i < start_versions_.size(); ++i) {
    const auto value = trace_.graph.inputs[i].value;
    const auto& storage = trace_.storages[static_cast<size_t>(
        trace_.values[static_cast<size_t>(value)].storage)];
    // What counted up a version otherwise was another thread.
    if (start_versions_[i] >= 0 && (storage.written || storage.rebound)) {
      auto& binding = trace_.bindings[i];
      binding.version_steps =
          tensor_of(binding)._version() - start_versions_[i];
    }
  }
}

void Recorder::let_go_of_arguments() {
  for (auto* held : {&arguments_, &own_arguments_}) {
    for (auto& argument : *held) {
      if (argument.defined() &&
          !(argument.is_leaf() && argument.requires_grad())) {
        argument = memory_of(argument);
      }
    }
  }
}

// Gathers operands and writes; false if the op can't be recorded.
bool Recorder::collect(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    const c10::IValue* arguments,
    graph::Op& out) {
  std::vector<int32_t> with_hidden;
  if (info.hidden_writes) {
    with_hidden = info.writes;
    for (const auto index : ops::hidden_writes(op, arguments)) {
      with_hidden.push_back(index);
    }
  }
  const auto& writes = info.hidden_writes ? with_hidden : info.writes;
  out.operands.resize(info.args.size());
  for (size_t i = 0; i < info.args.size(); ++i) {
    const auto& argument = arguments[i];
    auto& operand_out = out.operands[i];
    if (argument.isNone()) {
      continue;
    }
    const bool written =
        std::find(writes.begin(), writes.end(), static_cast<int32_t>(i)) !=
        writes.end();
    switch (info.args[i]) {
      case ArgKind::kTensor: {
        const auto value = operand(info, argument.toTensor(), written);
        operand_out.kind =
            value == kNoValue ? Operand::Kind::kNone : Operand::Kind::kValue;
        operand_out.value = value;
        if (written && value != kNoValue) {
          out.writes.push_back({static_cast<int32_t>(i), -1, kNoValue});
        }
        break;
      }
      case ArgKind::kTensorList: {
        operand_out.kind = Operand::Kind::kValueList;
        for_each_tensor(argument, [&](const at::Tensor& tensor) {
          const auto value = operand(info, tensor, written);
          if (written && value != kNoValue) {
            out.writes.push_back(
                {static_cast<int32_t>(i),
                 static_cast<int32_t>(operand_out.values.size()),
                 kNoValue});
          }
          operand_out.values.push_back(value);
        });
        break;
      }
      case ArgKind::kSlot:
        operand_out.kind = Operand::Kind::kSlot;
        operand_out.slots = {add_slot(argument)};
        break;
      case ArgKind::kSlotList: {
        operand_out.kind = Operand::Kind::kSlotList;
        for (const c10::IValue& v : argument.toListRef()) {
          operand_out.slots.push_back(add_slot(v));
        }
        break;
      }
      case ArgKind::kConstant:
        operand_out.kind = Operand::Kind::kConstant;
        operand_out.constant = argument;
        break;
      case ArgKind::kGenerator:
        fail(
            info.name +
            " draws from a generator of its own, which guards can't see yet");
        return false;
      case ArgKind::kUnsupported:
        fail(info.name + " has an argument that is no tensor or number");
        return false;
    }
    if (failed()) {
      return false;
    }
  }
  return true;
}

void Recorder::record_results(
    const OpInfo& info,
    graph::Op& op,
    const c10::IValue* results,
    size_t count,
    const WrittenOperands& written) {
  OpRecord record;
  record.info = &info;
  record.grad_mode = at::GradMode::is_enabled();
  const auto op_index = static_cast<int32_t>(trace_.graph.ops.size());
  const auto first_new = static_cast<ValueId>(trace_.graph.values.size());
  bool all_known_storage = true;
  for (size_t i = 0; i < count; ++i) {
    for_each_tensor(results[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        op.results.push_back(kNoValue);
        return;
      }
      if (!is_recordable(tensor)) {
        fail(info.name + " returns a tensor that is not strided");
        return;
      }
      if (const auto same = ledger_.find_object(tensor); same != kNoValue) {
        op.results.push_back(same);
        return;
      }
      // A written operand that is returned may be a shallow copy of what was
      // bound.
      for (const auto& [operand_in, value] : written) {
        if (operand_in.is_same(tensor)) {
          ledger_.bind(tensor, value);
          op.results.push_back(value);
          return;
        }
      }
      auto storage = ledger_.find_storage(tensor);
      if (storage < 0) {
        all_known_storage = false;
        storage = add_storage(tensor, -1);
        if (info.uninitialised) {
          uninitialised_by_[static_cast<size_t>(storage)] = op_index;
        }
      }
      op.results.push_back(add_value(tensor, storage));
    });
  }
  record.view = all_known_storage && op.writes.empty() && !op.results.empty();
  if (record.view && !info.view) {
    fail(info.name + " returned a view that its schema does not announce");
  }
  trace_.rng |= info.rng;
  trace_.graph.ops.push_back(std::move(op));
  trace_.ops.push_back(record);
  if (info.foreign && !record.view) {
    const auto made = trace_.graph.ops.back().results; // More ops follow.
    for (const auto value : made) {
      if (value >= first_new) {
        add_expected_layout(ledger_.object(value), value, info.name);
      }
    }
  }
}

// "an argument" or "a gradient" if an operand lives in the storage of one, in
// which its offset is free; else null.
const char* Recorder::free_offset(const graph::Op& op) const {
  for (const auto& operand : op.operands) {
    if (operand.kind != Operand::Kind::kValue) {
      continue;
    }
    const auto storage =
        trace_.values[static_cast<size_t>(operand.value)].storage;
    const auto input = trace_.storages[static_cast<size_t>(storage)].input;
    if (input < 0) {
      continue;
    }
    const auto i = static_cast<size_t>(input);
    if (trace_.bindings[i].argument >= 0) {
      return "an argument";
    }
    if (trace_.graph.inputs[i].role == graph::Role::kTangent) {
      return "a gradient";
    }
  }
  return nullptr;
}

// `equal` answers from data, unless the sizes differ; of a tensor with itself
// it is taken for an identity (by which MultiheadAttention recognises
// self-attention), NaN or not.
void Recorder::handle_equal(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
  if (!ops::depends_on_data(op, &torch::jit::peek(*stack, 0, 2))) {
    op.redispatchBoxed(below, stack);
    return;
  }
  const auto& self = torch::jit::peek(*stack, 0, 2).toTensor();
  const auto& other = torch::jit::peek(*stack, 1, 2).toTensor();
  const bool same = self.defined() && other.defined() &&
      resolve(self) == resolve(other) && resolve(self) != kNoValue;
  op.redispatchBoxed(below, stack);
  if (!same || !stack->back().toBool()) {
    fail("data dependence: aten::equal of different tensors decides what runs");
  }
}

void Recorder::handle(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
  const auto& info = op_info(op);
  if (info.decompose) {
    call_parts(op, stack);
    return;
  }
  const RawAccess::InOperator in(raw_, /*foreign=*/info.foreign);
  if (failed()) {
    op.redispatchBoxed(below, stack);
    return;
  }
  trace_.inner_gradients |=
      !ended_ && torch::autograd::get_current_graph_task_id() != task_;
  trace_.script = trace_.script || !torch::jit::currentCallstack().empty();
  const auto before = trace_.graph.ops.size();
  handle_op(info, op, below, stack);
  for (size_t i = before; i < trace_.graph.ops.size(); ++i) {
    watch_values(trace_.graph.ops[i]);
  }
}

void Recorder::handle_op(
    const OpInfo& info,
    const c10::OperatorHandle& op,
    c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
  if (info.equal) {
    handle_equal(op, below, stack);
    return;
  }
  const size_t num_args = info.args.size();
  const size_t base = stack->size() - num_args;
  if (info.data_dependent && ops::depends_on_data(op, stack->data() + base)) {
    fail("data dependence: " + info.name);
  } else if (!info.returns_tensors) {
    fail(info.name + " returns something that is no tensor");
  } else if (info.metadata_write) {
    fail(info.name + " changes the sizes or the storage of its operand");
  }
  graph::Op recorded{info.as_view ? *info.as_view : op, {}, {}, {}};
  at::Tensor rebound;
  if (!failed() && collect(op, info, stack->data() + base, recorded)) {
    if (info.rng && generator_touched()) {
      fail(kGeneratorTouched);
    }
    if (capture::op_info(recorded.op).absolute_view) {
      if (const char* whose = free_offset(recorded)) {
        fail(
            info.name + " of " + whose +
            " counts from the start of its storage, which guards don't see");
      }
    }
    if (info.as_view) {
      rebound = (*stack)[base].toTensor();
      recorded.writes.clear();
      const auto storage = ledger_.find_storage(rebound);
      if (storage >= 0 &&
          trace_.storages[static_cast<size_t>(storage)].input >= 0 &&
          std::any_of(
              trace_.bindings.begin(),
              trace_.bindings.end(),
              [&](const Binding& binding) {
                return binding.watched == rebound.unsafeGetTensorImpl() ||
                    (binding.argument >= 0 &&
                     arguments_[static_cast<size_t>(binding.argument)].is_same(
                         rebound));
              })) {
        fail(info.name + " changes the sizes of an input");
      }
      if (rebound.requires_grad() && !at::GradMode::is_enabled()) {
        fail(info.name + " changes the sizes of a tensor under no_grad");
      }
    }
  }
  // Written operands, to see that the op leaves their geometry alone.
  WrittenOperands written;
  c10::SmallVector<at::Tensor, 2> written_by_others;
  if (!failed()) {
    for (const auto& write : recorded.writes) {
      const auto& operand_in =
          recorded.operands[static_cast<size_t>(write.operand)];
      const auto& argument =
          (*stack)[base + static_cast<size_t>(write.operand)];
      if (write.element < 0) {
        written.emplace_back(argument.toTensor(), operand_in.value);
      }
      if (info.foreign) {
        written_by_others.push_back(
            write.element < 0
                ? argument.toTensor()
                : argument.toListRef()[static_cast<size_t>(write.element)]
                      .toTensor());
      }
    }
  }
  const auto versions_before = versions_of(written_by_others);
  if (failed()) {
    raw_.release_all();
  }
  try {
    op.redispatchBoxed(below, stack);
  } catch (...) {
    fail(info.name + " threw, and the call went on");
    throw;
  }
  if (failed()) {
    return;
  }
  for (const auto& [tensor, value] : written) {
    if (ledger_.find(tensor).value != value) {
      fail(info.name + " resized its output");
      return;
    }
  }
  for (const auto& write : recorded.writes) {
    const auto& operand_in =
        recorded.operands[static_cast<size_t>(write.operand)];
    const auto value = write.element < 0
        ? operand_in.value
        : operand_in.values[static_cast<size_t>(write.element)];
    trace_
        .storages[static_cast<size_t>(
            trace_.values[static_cast<size_t>(value)].storage)]
        .written = true;
  }
  const auto op_index = trace_.ops.size();
  if (rebound.defined()) {
    // The object now looks at its memory in the way of the view op's result.
    const auto storage = ledger_.find_storage(rebound);
    trace_.storages[static_cast<size_t>(storage)].rebound = true;
    recorded.results = {add_value(rebound, storage)};
    trace_.graph.ops.push_back(std::move(recorded));
    OpRecord record{&op_info(*info.as_view), true, false, true};
    record.grad_mode = at::GradMode::is_enabled();
    trace_.ops.push_back(record);
    return;
  }
  const size_t count = op.schema().returns().size();
  record_results(
      info, recorded, stack->data() + (stack->size() - count), count, written);
  if (!failed()) {
    // A custom function takes a number and runs its forward without grad mode.
    const bool may_be_custom = !at::GradMode::is_enabled() &&
        at::sequence_number::peek() != first_sequence_number_;
    trace_.ops[op_index].extra_steps = versions_of(written_by_others) -
        versions_before + (may_be_custom ? 1 : 0);
  }
  if (info.rng) {
    generator_ = GeneratorState::current();
  }
}

} // namespace temper::capture
