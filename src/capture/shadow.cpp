// The shadow executor: matching.
#include "capture/shadow.h"

#include <torch/csrc/autograd/node.h>

#include <algorithm>

#include "graph/constant.h"
#include "ops/data_dependence.h"
#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::Operand;
using graph::same_constant;
using graph::ValueId;

} // namespace

ShadowRun::ShadowRun(
    const Trace& trace,
    const std::vector<at::Tensor>& arguments)
    : trace_(trace),
      arguments_(trace, arguments),
      ledger_(trace),
      num_ops_(static_cast<size_t>(trace.graph.num_forward_ops)) {
  if (trace.rng) {
    generator_ = GeneratorState::current();
  }
  inputs_.resize(trace.bindings.size());
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    const auto& binding = trace.bindings[i];
    if (trace.graph.inputs[i].role == graph::Role::kTangent) {
      continue;
    }
    const auto value = trace.graph.inputs[i].value;
    auto real = binding.tensor(arguments);
    if (binding.argument >= 0) {
      const auto a = static_cast<size_t>(binding.argument);
      ledger_.bind_new(arguments_.shadows()[a], value, /*new_storage=*/false);
    } else {
      ledger_.bind_new(real, value, /*new_storage=*/false);
      inputs_[i] = ObjectState::of(real);
    }
    if (binding.version_steps > 0) {
      const auto version = real._version();
      versions_.emplace_back(std::move(real), version);
    }
  }
}

ShadowRun::~ShadowRun() = default;

std::string ShadowRun::object_change(
    const std::vector<int32_t>& rewritten) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const auto& binding = trace_.bindings[i];
    if (binding.watched == nullptr) {
      continue;
    }
    const auto now = ObjectState::of(binding.tensor(arguments_.originals()));
    if (const char* what = inputs_[i].change(now)) {
      return c10::str(
          "the call ", what, " '", trace_.graph.inputs[i].name, "'");
    }
  }
  return arguments_.change(rewritten);
}

bool ShadowRun::complete() const {
  return divergence_.empty() && !materialised_ && next_ == num_ops_;
}

ValueId ShadowRun::find(const at::Tensor& tensor) const {
  const auto found = ledger_.find(tensor);
  return found.found == Ledger::Found::kKnown ? found.value : kNoValue;
}

bool ShadowRun::is(const at::Tensor& tensor, ValueId value) const {
  if (!tensor.defined() || value == kNoValue) {
    return !tensor.defined() && value == kNoValue;
  }
  return ledger_.is_object(tensor, value) || find(tensor) == value;
}

bool ShadowRun::match_synthetic(
    const at::Tensor& tensor,
    size_t op_index,
    const char** why) {
  const auto& op = trace_.graph.ops[op_index];
  const auto value = op.results[0];
  if (op.op == ops::wrapped_number()) {
    const auto& slot =
        trace_.graph.slots[static_cast<size_t>(op.operands[0].slots[0])];
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
        !same_constant(c10::IValue(tensor.item()), slot)) {
      *why = "a number differs";
      return false;
    }
    ledger_.bind(tensor, value);
    return true;
  }
  const auto& type = trace_.graph.values[static_cast<size_t>(value)].type;
  if (tensor.storage().unsafeGetStorageImpl()->throw_on_immutable_data_ptr() ||
      tensor.scalar_type() != type.dtype || !tensor.is_contiguous() ||
      ops::literal_bytes(tensor) != op.operands[0].constant.toStringRef()) {
    *why = "a constant written in the code differs";
    return false;
  }
  ledger_.bind(tensor, value);
  return true;
}

bool ShadowRun::match_tensor(
    const at::Tensor& tensor,
    ValueId expected,
    const char** why) {
  if (!tensor.defined() || expected == kNoValue) {
    if (!tensor.defined() && expected == kNoValue) {
      return true;
    }
    *why = "an operand is undefined";
    return false;
  }
  // Constants stand right before the op that takes them.
  for (auto i = synthetic_from_; i < next_; ++i) {
    const auto& results = trace_.graph.ops[i].results;
    if (!results.empty() && results[0] == expected) {
      return match_synthetic(tensor, i, why);
    }
  }
  if (!is(tensor, expected)) {
    *why = "an operand is another tensor";
    return false;
  }
  return true;
}

bool ShadowRun::match_operand(
    const ArgumentRef& argument,
    const Operand& operand,
    const char** why) {
  static const at::Tensor undefined;
  const auto slot = [&](size_t k) -> const c10::IValue& {
    return trace_.graph.slots[static_cast<size_t>(operand.slots[k])];
  };
  const auto* tensor = argument.tensor();
  const auto given =
      tensor == nullptr ? !argument.is_none() : tensor->defined();
  switch (operand.kind) {
    case Operand::Kind::kNone:
      *why = "an operand was not given in the trace";
      return !given;
    case Operand::Kind::kValue:
      *why = "an operand is no tensor";
      return tensor != nullptr && match_tensor(*tensor, operand.value, why);
    case Operand::Kind::kValueList: {
      const auto size = argument.list_size();
      *why = size ? "a tensor list has another length"
                  : "a tensor list was expected";
      bool same = size == operand.values.size();
      for (size_t k = 0; same && k < operand.values.size(); ++k) {
        const auto* element = argument.element(k).tensor();
        same = match_tensor(
            element == nullptr ? undefined : *element, operand.values[k], why);
      }
      return same;
    }
    case Operand::Kind::kConstant:
      *why = "an argument differs";
      return argument.same(operand.constant);
    case Operand::Kind::kSlot:
      *why = "a number differs";
      return argument.same(slot(0));
    case Operand::Kind::kSlotList: {
      *why = "numbers differ";
      bool same = argument.list_size() == operand.slots.size();
      for (size_t k = 0; same && k < operand.slots.size(); ++k) {
        same = argument.element(k).same(slot(k));
      }
      return same;
    }
    case Operand::Kind::kObject:
      *why = "an object can't be matched";
      return false;
  }
  return false;
}

void ShadowRun::pass_synthetic() {
  synthetic_from_ = next_;
  while (next_ < num_ops_ && trace_.ops[next_].info->synthetic) {
    ++next_;
  }
}

bool ShadowRun::match(
    const OpInfo& info,
    const c10::OperatorHandle& op,
    const c10::IValue* arguments,
    std::string* why) {
  pass_synthetic();
  if (next_ == num_ops_) {
    *why = "the trace had ended";
    return false;
  }
  const auto& expected = trace_.graph.ops[next_];
  const auto& record = trace_.ops[next_];
  const bool same_op = record.rebinds
      ? info.as_view && *info.as_view == expected.op
      : !info.as_view && op == expected.op;
  if (!same_op) {
    *why = "the trace had " + record.info->name;
    return false;
  }
  for (size_t i = 0; i < info.args.size(); ++i) {
    const char* what = nullptr;
    if (!match_operand(
            ArgumentRef(arguments[i]), expected.operands[i], &what)) {
      *why = c10::str(
          what, " (argument '", op.schema().arguments()[i].name(), "')");
      return false;
    }
  }
  return true;
}

// Behind the last op, too, nothing may be left.
void ShadowRun::skip_checks() {
  static const auto expect_layout = ops::expect_layout();
  while (next_ < num_ops_ && trace_.graph.ops[next_].op == expect_layout) {
    ++next_;
  }
}

void ShadowRun::bind_results(
    const graph::Op& op,
    const c10::OperatorHandle& handle,
    const torch::jit::Stack& stack) {
  size_t at = 0;
  const auto take = [&](const c10::IValue& result) {
    const auto value = op.results[at++];
    if (value != kNoValue && result.isTensor() && result.toTensor().defined()) {
      ledger_.bind(result.toTensor(), value);
    }
  };
  const auto count = handle.schema().returns().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (stack[i].isTensor()) {
      take(stack[i]);
    } else if (stack[i].isTensorList()) {
      for (const auto& element : stack[i].toListRef()) {
        take(element);
      }
    }
  }
}

// The operand whose memory a view op of LibTorch's looks at; null if the op has
// to run to give what it gives.
const at::Tensor* ShadowRun::viewed(size_t index, const Tensors& tensors)
    const {
  const auto& record = trace_.ops[index];
  if (!record.view || record.info->foreign || record.literal_source) {
    return nullptr;
  }
  const auto& op = trace_.graph.ops[index];
  const auto storage_of = [&](ValueId value) {
    return trace_.values[static_cast<size_t>(value)].storage;
  };
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i].kind != Operand::Kind::kValue) {
      continue;
    }
    const auto storage = storage_of(op.operands[i].value);
    const auto& tensor = *tensors[i];
    const bool all =
        std::all_of(op.results.begin(), op.results.end(), [&](ValueId result) {
          return result != kNoValue && storage_of(result) == storage;
        });
    if (all && !tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      return &tensor;
    }
  }
  return nullptr;
}

// A view that does not look at an operand's memory, or a constant.
bool ShadowRun::has_to_run(size_t index, const at::Tensor* viewed) const {
  const auto& record = trace_.ops[index];
  return viewed == nullptr && (record.view || record.literal_source);
}

// What an op gives: an operand itself, a view of `viewed` (as the trace says
// that it looks), else a tensor in memory of its own.
at::Tensor ShadowRun::make_result(
    const graph::Op& op,
    const Tensors& tensors,
    const at::Tensor* viewed,
    ValueId id) {
  if (id == kNoValue) {
    return {};
  }
  if (viewed != nullptr) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i].value == id) {
        return *tensors[i];
      }
    }
  }
  for (const auto& write : op.writes) {
    const auto i = static_cast<size_t>(write.operand);
    if (write.element < 0 && op.operands[i].value == id) {
      return *tensors[i];
    }
  }
  const auto& type = trace_.graph.values[static_cast<size_t>(id)].type;
  const auto& info = trace_.values[static_cast<size_t>(id)];
  c10::Storage storage(
      viewed != nullptr ? viewed->storage() : ledger_.storage(info.storage));
  const bool new_storage = !storage;
  if (new_storage) {
    storage = make_shadow_storage(
        trace_.storages[static_cast<size_t>(info.storage)].nbytes, type.device);
  }
  auto tensor =
      make_shadow_tensor(std::move(storage), type, info, viewed != nullptr);
  ledger_.bind_new(tensor, id, new_storage);
  return tensor;
}

void ShadowRun::give_shadows(
    const graph::Op& op,
    const OpInfo& info,
    const Tensors& tensors,
    const at::Tensor* viewed,
    torch::jit::Stack* stack) {
  c10::SmallVector<at::Tensor, 4> results;
  for (const auto id : op.results) {
    results.push_back(make_result(op, tensors, viewed, id));
  }
  torch::jit::drop(*stack, info.args.size());
  if (info.returns_list) {
    stack->emplace_back(
        std::vector<at::Tensor>(results.begin(), results.end()));
    return;
  }
  for (auto& result : results) {
    stack->emplace_back(std::move(result));
  }
}

// Of the op that the trace has next, which it mostly is, this is at hand.
const OpInfo& ShadowRun::info_of(const c10::OperatorHandle& op) const {
  if (next_ < num_ops_ && !trace_.ops[next_].rebinds &&
      trace_.graph.ops[next_].op == op) {
    return *trace_.ops[next_].info;
  }
  return op_info(op);
}

void ShadowRun::handle(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
  const auto& info = info_of(op);
  if (info.decompose) {
    call_parts(op, stack);
    return;
  }
  TORCH_CHECK(refused_.empty(), kShadowDataMessage); // It is to unwind.
  if (materialised_) {
    op.redispatchBoxed(below, stack);
    return;
  }
  if (info.equal) {
    const auto self = torch::jit::peek(*stack, 0, 2).toTensor();
    const auto other = torch::jit::peek(*stack, 1, 2).toTensor();
    const bool same = self.defined() && other.defined() &&
        find(self) != kNoValue && find(self) == find(other);
    if (same || !ops::depends_on_data(op, &torch::jit::peek(*stack, 0, 2))) {
      torch::jit::drop(*stack, 2);
      stack->emplace_back(same);
      return;
    }
  }
  std::string why;
  const auto base = stack->size() - info.args.size();
  if (!match(info, op, stack->data() + base, &why)) {
    next_ = synthetic_from_;
    TORCH_CHECK(materialise(info.name + ": " + why), kShadowDataMessage);
    op.redispatchBoxed(below, stack);
    return;
  }
  const auto index = next_++;
  skip_checks();
  const auto& expected = trace_.graph.ops[index];
  const auto& record = trace_.ops[index];
  if (record.rebinds) {
    at::Tensor self = (*stack)[base].toTensor();
    op.redispatchBoxed(below, stack);
    ledger_.bind(self, expected.results[0]);
    return;
  }
  Tensors tensors;
  for (size_t i = base; i < stack->size(); ++i) {
    tensors.push_back(
        (*stack)[i].isTensor() ? &(*stack)[i].toTensor() : nullptr);
  }
  const auto* base_of_view = viewed(index, tensors);
  if (has_to_run(index, base_of_view)) {
    op.redispatchBoxed(below, stack);
    bind_results(expected, op, *stack);
    return;
  }
  give_shadows(expected, info, tensors, base_of_view, stack);
}

// As `handle`, of what matches and needs no op to run.
bool ShadowRun::handle_unboxed(
    const c10::OperatorHandle& op,
    std::span<const ArgumentRef> arguments,
    std::span<at::Tensor> results) {
  if (materialised_ || next_ == num_ops_ || trace_.graph.ops[next_].op != op) {
    return false;
  }
  const auto index = next_;
  const auto& expected = trace_.graph.ops[index];
  if (trace_.ops[index].rebinds || trace_.ops[index].info->equal) {
    return false;
  }
  synthetic_from_ = next_; // It is none.
  Tensors tensors;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const char* why = nullptr;
    if (!match_operand(arguments[i], expected.operands[i], &why)) {
      return false;
    }
    tensors.push_back(arguments[i].tensor());
  }
  const auto* base_of_view = viewed(index, tensors);
  if (has_to_run(index, base_of_view)) {
    return false;
  }
  ++next_;
  skip_checks();
  for (size_t i = 0; i < results.size(); ++i) {
    results[i] =
        make_result(expected, tensors, base_of_view, expected.results[i]);
  }
  return true;
}

} // namespace temper::capture
