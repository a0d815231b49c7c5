// The builder, the reference run, and comparing tensors.
#include "support/raw_builder.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <torch/torch.h>

#include <cstring>

#include "base/error.h"
#include "graph/build.h"
#include "graph/slots.h"
#include "ops/hidden_writes.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"

namespace temper::support {

using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::Role;
using graph::ValueId;

namespace {

size_t index(int32_t id) {
  return static_cast<size_t>(id);
}

void flatten(const c10::IValue& value, std::vector<at::Tensor>& out) {
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& each : value.toTensorVector()) {
      out.push_back(each);
    }
  }
}

c10::IValue tensor_list(
    const std::vector<at::Tensor>& tensors,
    const c10::Argument& formal) {
  const c10::TypePtr& type = formal.type();
  if (type->expectRef<c10::ListType>().getElementType()->kind() ==
      c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    for (const at::Tensor& each : tensors) {
      list.push_back(
          each.defined() ? std::optional<at::Tensor>(each) : std::nullopt);
    }
    return list;
  }
  return c10::List<at::Tensor>(at::TensorList(tensors));
}

// Slots of an IValue that the schema makes a run-time scalar.
Operand scalar_operand(
    Graph& graph,
    const c10::Argument& formal,
    const c10::IValue& value) {
  if (value.isNone()) {
    return graph::none_operand();
  }
  if (graph::is_slot_argument(formal)) {
    if (graph::is_slot_value(value)) {
      return graph::slot_operand(graph::add_slot(graph, value));
    }
    std::vector<int32_t> slots;
    if (value.isIntList()) {
      for (const int64_t each : value.toIntVector()) {
        slots.push_back(graph::add_slot(graph, each));
      }
      return graph::slot_list_operand(std::move(slots));
    }
    if (value.isDoubleList()) {
      for (const double each : value.toDoubleVector()) {
        slots.push_back(graph::add_slot(graph, each));
      }
      return graph::slot_list_operand(std::move(slots));
    }
  }
  return graph::constant_operand(value);
}

} // namespace

graph::Type RawBuilder::type_of(const at::Tensor& tensor) const {
  std::vector<graph::Dim> sizes;
  for (const int64_t size : tensor.sizes()) {
    sizes.push_back(size <= 1 ? graph::const_dim(size) : graph::any_dim(size));
  }
  graph::Type type = graph::dense_type(tensor.scalar_type(), std::move(sizes));
  type.strides = tensor.strides().vec();
  return type;
}

ValueId RawBuilder::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return kNoValue;
  }
  const auto known = values_.find(tensor.unsafeGetTensorImpl());
  if (known != values_.end()) {
    return known->second;
  }
  const void* storage = tensor.storage().unsafeGetStorageImpl();
  const int32_t number =
      storages_.emplace(storage, static_cast<int32_t>(storages_.size()))
          .first->second;
  const ValueId id = graph::add_value(graph_, type_of(tensor), number);
  values_.emplace(tensor.unsafeGetTensorImpl(), id);
  tensors_.push_back(tensor);
  return id;
}

ValueId RawBuilder::input(
    const at::Tensor& tensor,
    const std::string& name,
    Role role) {
  const ValueId id = value_of(tensor);
  graph_.inputs.push_back({id, role, name});
  written_.push_back(false);
  return id;
}

std::vector<ValueId> RawBuilder::call(
    std::string_view name,
    const std::vector<Arg>& args) {
  const c10::OperatorHandle handle = graph::find_op(name);
  const std::vector<c10::Argument>& formals = handle.schema().arguments();
  torch::jit::Stack stack;
  for (size_t i = 0; i < formals.size(); ++i) {
    if (i >= args.size()) {
      TORCH_CHECK(formals[i].default_value(), name, ": too few arguments");
      stack.push_back(*formals[i].default_value());
    } else if (args[i].kind == Arg::Kind::kValue) {
      stack.emplace_back(tensor(args[i].values[0]));
    } else if (args[i].kind == Arg::Kind::kList) {
      std::vector<at::Tensor> list;
      for (const ValueId id : args[i].values) {
        list.push_back(id == kNoValue ? at::Tensor() : tensor(id));
      }
      stack.push_back(tensor_list(list, formals[i]));
    } else {
      stack.push_back(args[i].scalar);
    }
  }
  const ops::HiddenWrites hidden = ops::hidden_writes(handle, stack.data());
  torch::jit::Stack arguments = stack;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    handle.callBoxed(stack);
  }
  Op op{handle, {}, {}, {}};
  for (size_t i = 0; i < formals.size(); ++i) {
    if (i < args.size() && args[i].kind == Arg::Kind::kValue) {
      op.operands.push_back(graph::value_operand(args[i].values[0]));
    } else if (i < args.size() && args[i].kind == Arg::Kind::kList) {
      op.operands.push_back(graph::value_list_operand(args[i].values));
    } else {
      op.operands.push_back(scalar_operand(graph_, formals[i], arguments[i]));
    }
  }
  std::vector<int32_t> writes = ops::info(handle).schema_writes;
  writes.insert(writes.end(), hidden.begin(), hidden.end());
  std::sort(writes.begin(), writes.end());
  for (const int32_t operand : writes) {
    const Operand& target = op.operands[index(operand)];
    const auto mark = [&](ValueId id) {
      for (size_t i = 0; i < graph_.inputs.size(); ++i) {
        const bool same =
            graph_.values[index(graph_.inputs[i].value)].storage ==
            graph_.values[index(id)].storage;
        written_[i] = written_[i] || (same && !forward_ended_);
      }
    };
    if (target.kind == Operand::Kind::kValue) {
      op.writes.push_back({operand, -1, kNoValue});
      mark(target.value);
    } else if (target.kind == Operand::Kind::kValueList) {
      for (size_t e = 0; e < target.values.size(); ++e) {
        op.writes.push_back({operand, static_cast<int32_t>(e), kNoValue});
        mark(target.values[e]);
      }
    }
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : stack) {
    flatten(value, results);
  }
  for (const at::Tensor& result : results) {
    op.results.push_back(value_of(result));
  }
  const std::vector<ValueId> ids = op.results;
  graph_.ops.push_back(std::move(op));
  return ids;
}

void RawBuilder::output(ValueId value) {
  graph_.outputs.push_back(value);
}

void RawBuilder::mutate_as_output(int32_t input) {
  as_output_.push_back(input);
}

void RawBuilder::end_forward() {
  if (forward_ended_) {
    return;
  }
  forward_ended_ = true;
  graph_.num_forward_ops = static_cast<int32_t>(graph_.ops.size());
  for (size_t i = 0; i < written_.size(); ++i) {
    const auto input = static_cast<int32_t>(i);
    if (written_[i]) {
      const bool as_output =
          std::find(as_output_.begin(), as_output_.end(), input) !=
          as_output_.end();
      graph_.mutations.push_back({input, kNoValue, as_output});
    }
  }
}

ValueId RawBuilder::tangent(int32_t output, const at::Tensor& value) {
  end_forward();
  const ValueId id =
      input(value, "tangent " + std::to_string(output), Role::kTangent);
  graph_.tangent_outputs.push_back(output);
  return id;
}

void RawBuilder::begin_segment(std::vector<ValueId> tangents) {
  graph::Segment segment;
  segment.first_op = static_cast<int32_t>(graph_.ops.size());
  for (const ValueId id : tangents) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (graph_.inputs[i].value == id) {
        segment.tangents.push_back(static_cast<int32_t>(i));
      }
    }
  }
  graph_.segments.push_back(std::move(segment));
}

void RawBuilder::deliver(ValueId value, int32_t input) {
  graph_.segments.back().deliveries.push_back(
      {graph::Delivery::Target::kInput, input, value});
}

void RawBuilder::end_segment() {
  graph_.segments.back().end_op = static_cast<int32_t>(graph_.ops.size());
}

Graph RawBuilder::graph() {
  end_forward();
  return graph_;
}

at::Tensor snapshot(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  int64_t extent = tensor.numel() == 0 ? 0 : 1;
  for (int64_t d = 0; d < tensor.dim() && extent > 0; ++d) {
    extent += (tensor.size(d) - 1) * tensor.stride(d);
  }
  const at::Tensor memory =
      tensor.detach()
          .as_strided({extent}, {1}, tensor.storage_offset())
          .clone();
  return memory.as_strided(tensor.sizes(), tensor.strides(), 0);
}

std::vector<at::Tensor> copy_inputs(const std::vector<at::Tensor>& inputs) {
  std::unordered_map<const void*, at::Tensor> memories;
  std::vector<at::Tensor> copies;
  for (const at::Tensor& input : inputs) {
    at::Tensor& memory = memories[input.storage().unsafeGetStorageImpl()];
    if (!memory.defined()) {
      const auto size =
          static_cast<int64_t>(input.storage().nbytes() / input.itemsize());
      memory = input.detach().as_strided({size}, {1}, 0).clone();
    }
    copies.push_back(memory.as_strided(
        input.sizes(), input.strides(), input.storage_offset()));
  }
  return copies;
}

RunResult run_raw(
    const Graph& raw,
    const std::vector<at::Tensor>& inputs,
    const std::vector<c10::IValue>& objects) {
  const at::AutoDispatchBelowADInplaceOrView below;
  std::vector<at::Tensor> values(raw.values.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[index(raw.inputs[i].value)] = inputs[i];
  }
  const auto get = [&](ValueId id) {
    return id == kNoValue ? at::Tensor() : values[index(id)];
  };
  const auto run_op = [&](const Op& op) {
    torch::jit::Stack stack;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Operand& operand = op.operands[i];
      switch (operand.kind) {
        case Operand::Kind::kNone:
          stack.emplace_back();
          break;
        case Operand::Kind::kValue:
          stack.emplace_back(get(operand.value));
          break;
        case Operand::Kind::kValueList: {
          std::vector<at::Tensor> list;
          for (const ValueId id : operand.values) {
            list.push_back(get(id));
          }
          stack.push_back(tensor_list(list, op.op.schema().arguments()[i]));
          break;
        }
        case Operand::Kind::kConstant:
          stack.push_back(operand.constant);
          break;
        case Operand::Kind::kSlot:
          stack.push_back(raw.slots[index(operand.slots[0])]);
          break;
        case Operand::Kind::kSlotList: {
          const bool real = !operand.slots.empty() &&
              raw.slots[index(operand.slots[0])].isDouble();
          if (real) {
            c10::List<double> list;
            for (const int32_t slot : operand.slots) {
              list.push_back(raw.slots[index(slot)].toDouble());
            }
            stack.emplace_back(list);
          } else {
            c10::List<int64_t> list;
            for (const int32_t slot : operand.slots) {
              list.push_back(raw.slots[index(slot)].toInt());
            }
            stack.emplace_back(list);
          }
          break;
        }
        case Operand::Kind::kObject:
          stack.push_back(objects.at(index(operand.slots[0])));
          break;
      }
    }
    op.op.callBoxed(stack);
    std::vector<at::Tensor> results;
    for (const c10::IValue& value : stack) {
      flatten(value, results);
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (op.results[i] != kNoValue) {
        values[index(op.results[i])] = results[i];
      }
    }
  };

  RunResult result;
  result.written_inputs.resize(raw.inputs.size());
  for (const Op& op : raw.ops) {
    for (const graph::Write& write : op.writes) {
      const Operand& operand = op.operands[index(write.operand)];
      const ValueId target = write.element < 0
          ? operand.value
          : operand.values[index(write.element)];
      for (size_t i = 0; i < raw.inputs.size(); ++i) {
        if (target != kNoValue &&
            raw.values[index(raw.inputs[i].value)].storage ==
                raw.values[index(target)].storage) {
          result.written_inputs[i] = true;
        }
      }
    }
  }
  for (int32_t i = 0; i < raw.num_forward_ops; ++i) {
    run_op(raw.ops[index(i)]);
  }
  for (const ValueId id : raw.outputs) {
    result.outputs.push_back(get(id));
    result.output_contents.push_back(snapshot(get(id)));
  }
  for (const graph::Input& input : raw.inputs) {
    if (input.role != Role::kTangent) {
      result.input_contents.push_back(snapshot(get(input.value)));
    }
  }
  for (const graph::Segment& segment : raw.segments) {
    for (int32_t i = segment.first_op; i < segment.end_op; ++i) {
      run_op(raw.ops[index(i)]);
    }
    std::vector<at::Tensor>& tensors = result.deliveries.emplace_back();
    std::vector<at::Tensor>& contents = result.delivery_contents.emplace_back();
    for (const graph::Delivery& delivery : segment.deliveries) {
      tensors.push_back(get(delivery.value));
      contents.push_back(snapshot(get(delivery.value)));
    }
  }
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) {
    return false;
  }
  if (!a.defined()) {
    return true;
  }
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes() ||
      a.strides() != b.strides()) {
    return false;
  }
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return x.nbytes() == 0 ||
      std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

} // namespace temper::support
