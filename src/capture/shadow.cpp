// The shadow executor: matching.
#include "capture/shadow.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::Operand;
using graph::ValueId;

at::Tensor make_tensor(
    c10::Storage storage,
    c10::DispatchKeySet keys,
    c10::ScalarType dtype,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), keys, c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt()) {
    return b.isInt() && a.toInt() == b.toInt();
  }
  if (a.isDouble()) {
    // By bits: -0.0 is not 0.0, and a NaN equals itself.
    return b.isDouble() &&
        std::bit_cast<uint64_t>(a.toDouble()) ==
        std::bit_cast<uint64_t>(b.toDouble());
  }
  if (a.isBool()) {
    return b.isBool() && a.toBool() == b.toBool();
  }
  return a.tagKind() == b.tagKind() && a == b;
}

} // namespace

ShadowRun::ShadowRun(
    const Trace& trace,
    const std::vector<at::Tensor>& arguments,
    FindWatched find_watched)
    : trace_(trace),
      originals_(arguments),
      find_watched_(std::move(find_watched)),
      ledger_(trace),
      num_ops_(static_cast<size_t>(trace.graph.num_forward_ops)),
      producer_(trace.graph.values.size(), -1) {
  // About one new tensor an op; the backward's values are never bound.
  ledger_.reserve(num_ops_ + trace.graph.inputs.size());
  for (size_t i = 0; i < num_ops_; ++i) {
    if (trace.ops[i].info->synthetic) {
      producer_[static_cast<size_t>(trace.graph.ops[i].results[0])] =
          static_cast<int32_t>(i);
    }
  }
  // A batch may be a slice of another tensor: its offset is free. Shadows have
  // the trace's offset, by which values are recognised.
  offsets_.reserve(originals_.size());
  std::vector<size_t> nbytes;
  for (const auto& original : originals_) {
    const bool plain =
        original.defined() && original.unsafeGetTensorImpl()->has_storage();
    offsets_.push_back(plain ? original.storage_offset() : 0);
    nbytes.push_back(plain ? original.storage().nbytes() : 0);
  }
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    const auto argument = trace.bindings[i].argument;
    if (argument >= 0) {
      const auto& info =
          trace.values[static_cast<size_t>(trace.graph.inputs[i].value)];
      const auto a = static_cast<size_t>(argument);
      offsets_[a] = info.offset;
      nbytes[a] = std::max(
          nbytes[a], trace.storages[static_cast<size_t>(info.storage)].nbytes);
    }
  }
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> made;
  for (size_t a = 0; a < originals_.size(); ++a) {
    const auto& original = originals_[a];
    if (!original.defined() || !original.unsafeGetTensorImpl()->has_storage()) {
      shadows_.push_back(original);
      continue;
    }
    const auto* impl = original.storage().unsafeGetStorageImpl();
    c10::Storage storage;
    for (const auto& [seen, its_shadow] : made) {
      if (seen == impl) {
        storage = its_shadow;
      }
    }
    if (!storage) {
      storage = make_shadow_storage(nbytes[a], original.device());
      made.emplace_back(impl, storage);
    }
    // The same object twice stays one object.
    at::Tensor shadow;
    for (size_t i = 0; i < shadows_.size(); ++i) {
      if (originals_[i].is_same(original)) {
        shadow = shadows_[i];
      }
    }
    if (!shadow.defined()) {
      // In inference mode, too, a normal tensor's shadow is a normal one.
      const c10::InferenceMode as_original(original.is_inference());
      shadow = make_tensor(
          storage,
          original.key_set(),
          original.scalar_type(),
          original.sizes(),
          original.strides(),
          offsets_[a]);
      auto* shadow_impl = shadow.unsafeGetTensorImpl();
      if (original.unsafeGetTensorImpl()->is_wrapped_number()) {
        shadow_impl->set_wrapped_number(true);
      }
      if (!original.is_inference()) {
        shadow_impl->set_version_counter(
            original.unsafeGetTensorImpl()->version_counter());
      }
      if (original.requires_grad()) {
        namespace autograd = torch::autograd;
        if (original.is_leaf()) {
          shadow.set_requires_grad(true);
          auto accumulator = autograd::impl::grad_accumulator(original);
          autograd::impl::set_grad_accumulator(
              shadow, c10::weak_intrusive_ptr<autograd::Node>(accumulator));
          accumulators_.push_back(std::move(accumulator));
        } else {
          autograd::impl::set_gradient_edge(
              shadow, autograd::impl::gradient_edge(original));
        }
      }
    }
    shadows_.push_back(shadow);
  }
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    const auto& binding = trace.bindings[i];
    if (trace.graph.inputs[i].role == graph::Role::kTangent) {
      continue;
    }
    const auto value = trace.graph.inputs[i].value;
    const auto storage = trace.values[static_cast<size_t>(value)].storage;
    const auto tensor = binding.argument >= 0
        ? shadows_[static_cast<size_t>(binding.argument)]
        : input_tensor(static_cast<int32_t>(i));
    ledger_.bind_new(tensor, value, /*new_storage=*/false);
    if (trace.storages[static_cast<size_t>(storage)].written) {
      auto real = input_tensor(static_cast<int32_t>(i));
      if (!real.is_inference()) {
        const auto version = real._version();
        versions_.emplace_back(std::move(real), version);
      }
    }
  }
}

ShadowRun::~ShadowRun() = default;

at::Tensor ShadowRun::input_tensor(int32_t input) const {
  const auto& binding = trace_.bindings[static_cast<size_t>(input)];
  if (binding.argument >= 0) {
    return originals_[static_cast<size_t>(binding.argument)];
  }
  return at::Tensor(
      c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim_copy(
          binding.watched));
}

at::Tensor ShadowRun::original(const at::Tensor& tensor) const {
  for (size_t i = 0; i < shadows_.size(); ++i) {
    if (shadows_[i].defined() && shadows_[i].is_same(tensor)) {
      return originals_[i];
    }
  }
  return tensor;
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
    std::string* why) {
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
    std::string* why) {
  if (!tensor.defined() || expected == kNoValue) {
    if (!tensor.defined() && expected == kNoValue) {
      return true;
    }
    *why = "an operand is undefined";
    return false;
  }
  const auto synthetic = producer_[static_cast<size_t>(expected)];
  if (synthetic >= static_cast<int32_t>(synthetic_from_)) {
    return match_synthetic(tensor, static_cast<size_t>(synthetic), why);
  }
  if (!is(tensor, expected)) {
    *why = "an operand is another tensor";
    return false;
  }
  return true;
}

bool ShadowRun::match_operand(
    const c10::IValue& argument,
    const Operand& operand,
    std::string* why) {
  const auto slot = [&](size_t k) -> const c10::IValue& {
    return trace_.graph.slots[static_cast<size_t>(operand.slots[k])];
  };
  switch (operand.kind) {
    case Operand::Kind::kNone:
      if (!argument.isNone() &&
          !(argument.isTensor() && !argument.toTensor().defined())) {
        *why = "an operand was not given in the trace";
        return false;
      }
      return true;
    case Operand::Kind::kValue:
      if (!argument.isTensor()) {
        *why = "an operand is no tensor";
        return false;
      }
      return match_tensor(argument.toTensor(), operand.value, why);
    case Operand::Kind::kValueList: {
      if (!argument.isList()) {
        *why = "a tensor list was expected";
        return false;
      }
      const auto list = argument.toListRef();
      if (list.size() != operand.values.size()) {
        *why = "a tensor list has another length";
        return false;
      }
      for (size_t k = 0; k < list.size(); ++k) {
        const bool same = list[k].isTensor()
            ? match_tensor(list[k].toTensor(), operand.values[k], why)
            : match_tensor(at::Tensor(), operand.values[k], why);
        if (!same) {
          return false;
        }
      }
      return true;
    }
    case Operand::Kind::kConstant:
      if (!same_constant(argument, operand.constant)) {
        *why = "an argument differs";
        return false;
      }
      return true;
    case Operand::Kind::kSlot:
      if (!same_constant(argument, slot(0))) {
        *why = "a number differs";
        return false;
      }
      return true;
    case Operand::Kind::kSlotList: {
      bool same = argument.isList();
      if (same) {
        const auto list = argument.toListRef();
        same = list.size() == operand.slots.size();
        for (size_t k = 0; same && k < list.size(); ++k) {
          same = same_constant(list[k], slot(k));
        }
      }
      if (!same) {
        *why = "numbers differ";
      }
      return same;
    }
    case Operand::Kind::kObject:
      *why = "an object can't be matched";
      return false;
  }
  return false;
}

bool ShadowRun::match(
    const OpInfo& info,
    const c10::OperatorHandle& op,
    const c10::IValue* arguments,
    std::string* why) {
  synthetic_from_ = next_;
  while (next_ < num_ops_ && trace_.ops[next_].info->synthetic) {
    ++next_;
  }
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
    if (!match_operand(arguments[i], expected.operands[i], why)) {
      *why += " (argument '" + op.schema().arguments()[i].name() + "')";
      return false;
    }
  }
  return true;
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
const at::Tensor* ShadowRun::viewed(size_t index, const c10::IValue* arguments)
    const {
  const auto& record = trace_.ops[index];
  if (!record.view || !record.info->aten || record.literal_source) {
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
    const auto& tensor = arguments[i].toTensor();
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

// What an op gives: an operand itself, a view of `viewed` (as the trace says
// that it looks), else a tensor in memory of its own.
at::Tensor ShadowRun::make_result(
    const graph::Op& op,
    const c10::IValue* arguments,
    const at::Tensor* viewed,
    ValueId id) {
  if (id == kNoValue) {
    return {};
  }
  if (viewed != nullptr) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i].value == id) {
        return arguments[i].toTensor();
      }
    }
  }
  for (const auto& write : op.writes) {
    const auto i = static_cast<size_t>(write.operand);
    if (write.element < 0 && op.operands[i].value == id) {
      return arguments[i].toTensor();
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
    const c10::OperatorHandle& handle,
    const at::Tensor* viewed,
    torch::jit::Stack* stack) {
  const auto& schema = handle.schema();
  const auto num_args = schema.arguments().size();
  const auto* arguments = stack->data() + (stack->size() - num_args);
  c10::SmallVector<at::Tensor, 4> results;
  for (const auto id : op.results) {
    results.push_back(make_result(op, arguments, viewed, id));
  }
  torch::jit::drop(*stack, num_args);
  if (schema.returns().size() == 1 &&
      schema.returns()[0].type()->kind() == c10::TypeKind::ListType) {
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
    c10::impl::tls_set_dispatch_key_excluded(kKey, false);
    try {
      op.callBoxedForDispatchKey(
          c10::DispatchKey::CompositeImplicitAutograd, *stack);
    } catch (...) {
      c10::impl::tls_set_dispatch_key_excluded(kKey, true);
      throw;
    }
    c10::impl::tls_set_dispatch_key_excluded(kKey, true);
    return;
  }
  if (materialised_) {
    op.redispatchBoxed(below, stack);
    return;
  }
  if (info.equal) {
    const auto self = torch::jit::peek(*stack, 0, 2).toTensor();
    const auto other = torch::jit::peek(*stack, 1, 2).toTensor();
    const auto value = self.defined() ? find(self) : kNoValue;
    if (value != kNoValue && other.defined() && find(other) == value) {
      torch::jit::drop(*stack, 2);
      stack->emplace_back(true);
      return;
    }
  }
  std::string why;
  const auto base = stack->size() - info.args.size();
  if (!match(info, op, stack->data() + base, &why)) {
    next_ = synthetic_from_;
    materialise(info.name + ": " + why);
    op.redispatchBoxed(below, stack);
    return;
  }
  const auto index = next_++;
  const auto& expected = trace_.graph.ops[index];
  const auto& record = trace_.ops[index];
  if (record.rebinds) {
    at::Tensor self = (*stack)[base].toTensor();
    op.redispatchBoxed(below, stack);
    ledger_.bind(self, expected.results[0]);
    return;
  }
  const auto* base_of_view = viewed(index, stack->data() + base);
  if (base_of_view == nullptr && (record.view || record.literal_source)) {
    op.redispatchBoxed(below, stack);
    bind_results(expected, op, *stack);
    return;
  }
  give_shadows(expected, op, base_of_view, stack);
}

} // namespace temper::capture
