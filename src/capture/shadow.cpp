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

c10::Storage make_shadow_storage(size_t nbytes, c10::Device device) {
  c10::Storage storage(
      c10::Storage::use_byte_size_t(),
      nbytes,
      at::DataPtr(nullptr, device),
      nullptr,
      /*resizable=*/false);
  storage.unsafeGetStorageImpl()
      ->release_data_and_set_meta_custom_data_ptr_error_msg_(
          std::string(kShadowDataMessage));
  return storage;
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.tagKind() != b.tagKind()) {
    return false;
  }
  if (a.isDouble()) {
    const double x = a.toDouble();
    const double y = b.toDouble();
    // By bits: -0.0 is not 0.0, and a NaN equals itself.
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  }
  if (a.isInt()) {
    return a.toInt() == b.toInt();
  }
  if (a.isBool()) {
    return a.toBool() == b.toBool();
  }
  return a == b;
}

bool is_synthetic(const OpInfo& info) {
  return info.name.starts_with("temper::");
}

} // namespace

const char* const kShadowDataMessage =
    "temper: the data of a tensor was read outside of tensor ops while a "
    "compiled call was being checked; the call runs eagerly instead";

ShadowRun::ShadowRun(
    const Trace& trace,
    const std::vector<at::Tensor>& arguments,
    FindWatched find_watched)
    : trace_(trace),
      originals_(arguments),
      find_watched_(std::move(find_watched)),
      ledger_(trace),
      storages_(),
      bound_storage_(trace.storages.size(), 0),
      producer_(trace.graph.values.size(), -1) {
  c10::weak_intrusive_ptr<c10::TensorImpl> no_object{
      c10::intrusive_ptr<c10::TensorImpl>()};
  c10::weak_intrusive_ptr<c10::StorageImpl> no_storage{
      c10::intrusive_ptr<c10::StorageImpl>()};
  objects_.assign(trace.graph.values.size(), no_object);
  storages_.assign(trace.storages.size(), no_storage);
  const auto forward_ops = static_cast<size_t>(trace.graph.num_forward_ops);
  for (size_t i = 0; i < forward_ops; ++i) {
    if (is_synthetic(*trace.ops[i].info)) {
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
    bind(tensor, value);
    const auto real = input_tensor(static_cast<int32_t>(i));
    if (trace.storages[static_cast<size_t>(storage)].written &&
        !real.is_inference()) {
      versions_.emplace_back(real, real._version());
    }
  }
}

ShadowRun::~ShadowRun() = default;

void ShadowRun::bind(const at::Tensor& tensor, ValueId value) {
  ledger_.bind(tensor, value);
  objects_[static_cast<size_t>(value)] =
      c10::weak_intrusive_ptr<c10::TensorImpl>(tensor.getIntrusivePtr());
  const auto storage =
      static_cast<size_t>(trace_.values[static_cast<size_t>(value)].storage);
  storages_[storage] = tensor.storage().getWeakStorageImpl();
  bound_storage_[storage] = 1;
}

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
  return divergence_.empty() && !materialised_ &&
      next_ == static_cast<size_t>(trace_.graph.num_forward_ops);
}

ValueId ShadowRun::resolve(const at::Tensor& tensor) {
  const auto value = ledger_.find_object(tensor);
  if (value != kNoValue) {
    return value;
  }
  const auto found = ledger_.find(tensor);
  return found.found == Ledger::Found::kKnown ? found.value : kNoValue;
}

ValueId ShadowRun::find(const at::Tensor& tensor) {
  return resolve(tensor);
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
    bind(tensor, value);
    return true;
  }
  const auto& type = trace_.graph.values[static_cast<size_t>(value)].type;
  if (tensor.storage().unsafeGetStorageImpl()->throw_on_immutable_data_ptr() ||
      tensor.scalar_type() != type.dtype || !tensor.is_contiguous() ||
      ops::literal_bytes(tensor) != op.operands[0].constant.toStringRef()) {
    *why = "a constant written in the code differs";
    return false;
  }
  bind(tensor, value);
  return true;
}

bool ShadowRun::match_tensor(
    const at::Tensor& tensor,
    ValueId expected,
    std::string* why) {
  if (!tensor.defined() || expected == kNoValue) {
    *why = "an operand is undefined";
    return !tensor.defined() && expected == kNoValue;
  }
  const auto synthetic = producer_[static_cast<size_t>(expected)];
  if (synthetic >= static_cast<int32_t>(synthetic_from_) &&
      ledger_.find_object(tensor) != expected) {
    return match_synthetic(tensor, static_cast<size_t>(synthetic), why);
  }
  if (resolve(tensor) != expected) {
    *why = "an operand is another tensor";
    return false;
  }
  return true;
}

bool ShadowRun::match(
    const OpInfo& info,
    const c10::OperatorHandle& op,
    const c10::IValue* arguments,
    std::string* why) {
  const auto end = static_cast<size_t>(trace_.graph.num_forward_ops);
  synthetic_from_ = next_;
  while (next_ < end && is_synthetic(*trace_.ops[next_].info)) {
    ++next_;
  }
  if (next_ == end) {
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
    const auto& argument = arguments[i];
    const auto& operand = expected.operands[i];
    switch (operand.kind) {
      case Operand::Kind::kNone:
        if (!argument.isNone() &&
            !(argument.isTensor() && !argument.toTensor().defined())) {
          *why = "an operand was not given in the trace";
          return false;
        }
        break;
      case Operand::Kind::kValue:
        if (!argument.isTensor() ||
            !match_tensor(argument.toTensor(), operand.value, why)) {
          return false;
        }
        break;
      case Operand::Kind::kValueList: {
        std::vector<at::Tensor> list;
        if (argument.isTensorList()) {
          list = argument.toTensorVector();
        } else if (argument.isList()) {
          for (const c10::IValue& element : argument.toListRef()) {
            list.push_back(
                element.isTensor() ? element.toTensor() : at::Tensor());
          }
        } else {
          *why = "a tensor list was expected";
          return false;
        }
        if (list.size() != operand.values.size()) {
          *why = "a tensor list has another length";
          return false;
        }
        for (size_t k = 0; k < list.size(); ++k) {
          if (!match_tensor(list[k], operand.values[k], why)) {
            return false;
          }
        }
        break;
      }
      case Operand::Kind::kConstant:
        if (!same_constant(argument, operand.constant)) {
          *why = "argument " + std::to_string(i) + " differs";
          return false;
        }
        break;
      case Operand::Kind::kSlot:
        if (!same_constant(
                argument,
                trace_.graph.slots[static_cast<size_t>(operand.slots[0])])) {
          *why = "the number in argument " + std::to_string(i) + " differs";
          return false;
        }
        break;
      case Operand::Kind::kSlotList: {
        const auto n = operand.slots.size();
        const auto slot = [&](size_t k) -> const c10::IValue& {
          return trace_.graph.slots[static_cast<size_t>(operand.slots[k])];
        };
        bool same = false;
        if (argument.isIntList()) {
          const auto list = argument.toIntList();
          same = list.size() == n;
          for (size_t k = 0; same && k < n; ++k) {
            same = slot(k).isInt() && slot(k).toInt() == list.get(k);
          }
        } else if (argument.isList()) {
          const auto list = argument.toListRef();
          same = list.size() == n;
          for (size_t k = 0; same && k < n; ++k) {
            same = same_constant(list[k], slot(k));
          }
        } else if (argument.isDoubleList()) {
          const auto list = argument.toDoubleList();
          same = list.size() == n;
          for (size_t k = 0; same && k < n; ++k) {
            same = same_constant(c10::IValue(list.get(k)), slot(k));
          }
        }
        if (!same) {
          *why = "the numbers in argument " + std::to_string(i) + " differ";
          return false;
        }
        break;
      }
      case Operand::Kind::kObject:
        *why = "an object can't be matched";
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
  const auto count = handle.schema().returns().size();
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    const auto take = [&](const at::Tensor& tensor) {
      const auto value = op.results[at++];
      if (value != kNoValue && tensor.defined()) {
        bind(tensor, value);
      }
    };
    if (stack[i].isTensor()) {
      take(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& tensor : stack[i].toTensorVector()) {
        take(tensor);
      }
    }
  }
}

void ShadowRun::give_shadows(
    const graph::Op& op,
    const c10::OperatorHandle& handle,
    torch::jit::Stack* stack) {
  const auto& schema = handle.schema();
  const auto num_args = schema.arguments().size();
  const auto base = stack->size() - num_args;
  std::vector<at::Tensor> results;
  results.reserve(op.results.size());
  for (const auto id : op.results) {
    if (id == kNoValue) {
      results.emplace_back();
      continue;
    }
    // A written operand that is returned.
    const at::Tensor* written = nullptr;
    for (const auto& write : op.writes) {
      const auto& operand = op.operands[static_cast<size_t>(write.operand)];
      if (write.element < 0 && operand.value == id) {
        written =
            &(*stack)[base + static_cast<size_t>(write.operand)].toTensor();
      }
    }
    if (written != nullptr) {
      results.push_back(*written);
      continue;
    }
    const auto& type = trace_.graph.values[static_cast<size_t>(id)].type;
    const auto& info = trace_.values[static_cast<size_t>(id)];
    const auto storage_index = static_cast<size_t>(info.storage);
    c10::Storage storage;
    if (bound_storage_[storage_index]) {
      if (auto alive = storages_[storage_index].lock()) {
        storage = c10::Storage(std::move(alive));
      }
    }
    if (!storage) {
      storage = make_shadow_storage(
          trace_.storages[storage_index].nbytes, type.device);
    }
    c10::SmallVector<int64_t, 8> sizes;
    for (const auto& dim : type.sizes) {
      sizes.push_back(dim.size);
    }
    results.push_back(make_tensor(
        std::move(storage),
        c10::DispatchKeySet(
            c10::computeDispatchKey(type.dtype, c10::kStrided, type.device)),
        type.dtype,
        sizes,
        type.strides,
        info.offset));
    bind(results.back(), id);
  }
  torch::jit::drop(*stack, num_args);
  if (schema.returns().size() == 1 &&
      schema.returns()[0].type()->kind() == c10::TypeKind::ListType) {
    stack->emplace_back(std::move(results));
    return;
  }
  for (auto& result : results) {
    stack->emplace_back(std::move(result));
  }
}

void ShadowRun::handle(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
  const auto& info = op_info(op);
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
  if (is_equal(info)) {
    const auto self = torch::jit::peek(*stack, 0, 2).toTensor();
    const auto other = torch::jit::peek(*stack, 1, 2).toTensor();
    const auto value = self.defined() ? resolve(self) : kNoValue;
    if (value != kNoValue && other.defined() && resolve(other) == value) {
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
    bind(self, expected.results[0]);
    return;
  }
  if (record.view || record.literal_source) {
    op.redispatchBoxed(below, stack);
    bind_results(expected, op, *stack);
    return;
  }
  give_shadows(expected, op, stack);
}

} // namespace temper::capture
