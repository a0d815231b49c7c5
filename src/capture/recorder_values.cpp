// How the recorder's tensors become values: graph inputs, numbers, small
// literals, the results of ops.
#include <ATen/Functions.h>

#include "capture/recorder.h"
#include "capture/shadow_tensor.h"
#include "graph/build.h"
#include "graph/slots.h"
#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::Operand;
using graph::ValueId;

// Constants are copied into the graph as text: keep them small.
constexpr int64_t kMaxLiteralBytes = 4096;

at::Tensor on_meta(const graph::Type& type) {
  std::vector<int64_t> sizes;
  for (const auto& dim : type.sizes) {
    sizes.push_back(dim.size);
  }
  return at::empty_strided(
      sizes, type.strides, at::dtype(type.dtype).device(c10::kMeta));
}

} // namespace

int32_t Recorder::add_slot(const c10::IValue& value) {
  if (!graph::is_slot_value(value)) {
    fail("a number is a symbol, or past the range of int64");
  }
  trace_.graph.slots.push_back(value);
  return static_cast<int32_t>(trace_.graph.slots.size()) - 1;
}

int32_t Recorder::add_storage(const at::Tensor& tensor, int32_t input) {
  trace_.storages.push_back({tensor.storage().nbytes(), input, false});
  uninitialised_by_.push_back(-1);
  return static_cast<int32_t>(trace_.storages.size()) - 1;
}

ValueId Recorder::add_value(const at::Tensor& tensor, int32_t storage) {
  graph::Value value;
  value.storage = storage;
  auto& type = value.type;
  type.dtype = tensor.scalar_type();
  type.device = tensor.device();
  type.conj = tensor.is_conj();
  type.neg = tensor.is_neg();
  type.strides = tensor.strides().vec();
  for (const auto size : tensor.sizes()) {
    graph::Dim dim;
    dim.kind = size <= 1 ? graph::Dim::Kind::kConst : graph::Dim::Kind::kAny;
    dim.size = size;
    type.sizes.push_back(dim);
  }
  trace_.graph.values.push_back(std::move(value));
  trace_.values.push_back(
      {tensor.storage_offset(),
       storage,
       tensor.key_set(),
       memory_formats(*tensor.unsafeGetTensorImpl())});
  const auto id = static_cast<ValueId>(trace_.graph.values.size()) - 1;
  ledger_.bind(tensor, id);
  return id;
}

ValueId Recorder::add_input(
    const at::Tensor& tensor,
    graph::Role role,
    const std::string& name,
    Binding binding) {
  const auto index = static_cast<int32_t>(trace_.graph.inputs.size());
  auto storage = ledger_.find_storage(tensor);
  if (storage < 0) {
    storage = add_storage(tensor, index);
  }
  const auto id = add_value(tensor, storage);
  for (auto& dim : trace_.graph.values.back().type.sizes) {
    if (dim.kind == graph::Dim::Kind::kAny) {
      if (role == graph::Role::kArgument) {
        dim.kind = graph::Dim::Kind::kSlot;
        dim.slot = add_slot(dim.size);
      } else if (role != graph::Role::kTangent) {
        dim.kind = graph::Dim::Kind::kConst;
      }
    }
  }
  trace_.graph.inputs.push_back({id, role, name});
  trace_.bindings.push_back(binding);
  // Ops count versions up above this key, after they ran: none has yet.
  start_versions_.resize(trace_.graph.inputs.size(), -1);
  start_versions_.back() = tensor.is_inference() ? -1 : tensor._version();
  return id;
}

int32_t Recorder::input_of_argument(int32_t index) {
  auto& input = argument_inputs_[static_cast<size_t>(index)];
  if (input < 0) {
    input = static_cast<int32_t>(trace_.graph.inputs.size());
    add_input(
        arguments_[static_cast<size_t>(index)],
        graph::Role::kArgument,
        names_[static_cast<size_t>(index)],
        {index, nullptr});
  }
  return input;
}

int32_t Recorder::input_of_watched(const at::Tensor& tensor) {
  const auto watched = find_watched_(tensor);
  return watched && watched->tensor.is_same(tensor) ? add_watched(*watched)
                                                    : -1;
}

int32_t Recorder::add_watched(const WatchedTensor& watched) {
  auto* impl = watched.tensor.unsafeGetTensorImpl();
  for (size_t i = 0; i < trace_.bindings.size(); ++i) {
    if (trace_.bindings[i].watched == impl) { // Never a tangent's: null.
      return static_cast<int32_t>(i);
    }
  }
  if (!is_recordable(watched.tensor)) {
    return -1;
  }
  place_ = "after '" + watched.path + "'";
  add_input(watched.tensor, watched.role, watched.path, {-1, impl});
  return static_cast<int32_t>(trace_.graph.inputs.size()) - 1;
}

ValueId Recorder::resolve(const at::Tensor& tensor) {
  if (const auto value = ledger_.find_object(tensor); value != kNoValue) {
    return value;
  }
  // An argument or watched tensor is an input of its own even where its memory
  // is known already: its gradient is its own.
  for (size_t i = 0; i < arguments_.size(); ++i) {
    if (argument_inputs_[i] < 0 && arguments_[i].is_same(tensor)) {
      return trace_.graph
          .inputs[static_cast<size_t>(
              input_of_argument(static_cast<int32_t>(i)))]
          .value;
    }
  }
  if (const auto input = input_of_watched(tensor); input >= 0) {
    const auto value = trace_.graph.inputs[static_cast<size_t>(input)].value;
    const auto watched = ledger_.find(tensor);
    return watched.found == Ledger::Found::kKnown ? watched.value : value;
  }
  auto found = ledger_.find(tensor);
  if (found.found == Ledger::Found::kUnknown) {
    // A shallow copy of an argument that no op has used itself.
    for (size_t i = 0; i < arguments_.size(); ++i) {
      if (argument_inputs_[i] < 0 && arguments_[i].defined() &&
          arguments_[i].unsafeGetTensorImpl()->has_storage() &&
          arguments_[i].is_alias_of(tensor)) {
        input_of_argument(static_cast<int32_t>(i));
        found = ledger_.find(tensor);
        break;
      }
    }
  }
  if (found.found != Ledger::Found::kKnown) {
    // Likewise of a watched tensor (`weight.data()`).
    const auto watched = find_watched_(tensor);
    if (watched && add_watched(*watched) >= 0) {
      found = ledger_.find(tensor);
    }
  }
  return found.found == Ledger::Found::kKnown ? found.value : kNoValue;
}

ValueId Recorder::add_fresh(const at::Tensor& tensor) {
  return add_value(tensor, add_storage(tensor, -1));
}

ValueId Recorder::add_tangent(const at::Tensor& tensor, int32_t output) {
  const auto index = static_cast<int32_t>(trace_.graph.inputs.size());
  const auto id = add_value(tensor, add_storage(tensor, index));
  trace_.graph.inputs.push_back({id, graph::Role::kTangent, ""});
  trace_.bindings.emplace_back();
  trace_.graph.tangent_outputs.push_back(output);
  return id;
}

ValueId Recorder::record_sum(ValueId a, ValueId b) {
  static const auto add = graph::find_op("aten::add.Tensor");
  graph::Op op{add, {}, {}, {}};
  op.operands.resize(3);
  op.operands[0].kind = Operand::Kind::kValue;
  op.operands[0].value = a;
  op.operands[1].kind = Operand::Kind::kValue;
  op.operands[1].value = b;
  op.operands[2].kind = Operand::Kind::kSlot;
  op.operands[2].slots = {add_slot(int64_t{1})};
  graph::Value value;
  const auto& type_a = trace_.graph.values[static_cast<size_t>(a)].type;
  const auto& type_b = trace_.graph.values[static_cast<size_t>(b)].type;
  value.type = type_a;
  value.type.conj = false; // What is lazily so is a view, which is not written.
  value.type.neg = false;
  value.type.strides =
      at::add(on_meta(type_a), on_meta(type_b)).strides().vec();
  value.storage = static_cast<int32_t>(trace_.storages.size());
  trace_.storages.push_back({0, -1, false});
  uninitialised_by_.push_back(-1);
  trace_.values.push_back({0, value.storage, {}, 0});
  trace_.graph.values.push_back(std::move(value));
  const auto id = static_cast<ValueId>(trace_.graph.values.size()) - 1;
  op.results = {id};
  trace_.graph.ops.push_back(std::move(op));
  trace_.ops.push_back({&capture::op_info(add), false, false, false});
  return id;
}

void Recorder::place_sum(ValueId sum, const at::Tensor& tensor) {
  const auto& type = trace_.graph.values[static_cast<size_t>(sum)].type;
  const auto storage = trace_.values[static_cast<size_t>(sum)].storage;
  if (tensor.is_conj() || tensor.is_neg()) {
    fail("autograd summed lazily conjugated gradients in place");
    return;
  }
  if (tensor.strides() != c10::IntArrayRef(type.strides)) {
    // The engine added in place, where dimensions of size 1 keep their strides.
    for (int64_t d = 0; d < tensor.dim(); ++d) {
      if (tensor.size(d) > 1 &&
          tensor.stride(d) != type.strides[static_cast<size_t>(d)]) {
        fail("autograd summed gradients of several layouts in place");
        return;
      }
    }
    trace_.storages[static_cast<size_t>(storage)].nbytes =
        tensor.storage().nbytes();
    add_restrided(sum, tensor);
    return;
  }
  auto& info = trace_.values[static_cast<size_t>(sum)];
  info.offset = tensor.storage_offset();
  info.keys = tensor.key_set();
  trace_.storages[static_cast<size_t>(info.storage)].nbytes =
      tensor.storage().nbytes();
  ledger_.bind(tensor, sum);
}

// The same memory in the strides of `tensor`.
void Recorder::add_restrided(ValueId source, const at::Tensor& tensor) {
  static const auto as_strided = graph::find_op("aten::as_strided");
  graph::Op op{as_strided, {}, {}, {}};
  op.operands.resize(4);
  op.operands[0].kind = Operand::Kind::kValue;
  op.operands[0].value = source;
  for (const size_t i : {1, 2}) {
    op.operands[i].kind = Operand::Kind::kSlotList;
    for (const auto each : i == 1 ? tensor.sizes() : tensor.strides()) {
      op.operands[i].slots.push_back(add_slot(each));
    }
  }
  op.results = {
      add_value(tensor, trace_.values[static_cast<size_t>(source)].storage)};
  trace_.graph.ops.push_back(std::move(op));
  trace_.ops.push_back({&capture::op_info(as_strided), true, false, false});
}

// Of operators of other libraries nothing says that the sizes of their results
// don't depend on data. What was recorded holds for these sizes only.
void Recorder::add_expected_layout(
    const at::Tensor& tensor,
    ValueId value,
    const std::string& made_by) {
  static const auto expect_layout = ops::expect_layout();
  graph::Op op{expect_layout, {}, {}, {}};
  op.operands.resize(4);
  op.operands[0].kind = Operand::Kind::kValue;
  op.operands[0].value = value;
  for (const size_t i : {1, 2}) {
    op.operands[i].kind = Operand::Kind::kSlotList;
    for (const auto each : i == 1 ? tensor.sizes() : tensor.strides()) {
      op.operands[i].slots.push_back(add_slot(each));
    }
  }
  op.operands[3].kind = Operand::Kind::kConstant;
  op.operands[3].constant = made_by;
  trace_.graph.ops.push_back(std::move(op));
  trace_.ops.push_back({&op_info(expect_layout), false, false, false});
}

ValueId Recorder::add_wrapped_number(const at::Tensor& tensor) {
  static const auto number = ops::wrapped_number();
  const auto id = add_fresh(tensor);
  graph::Op op{number, {}, {id}, {}};
  op.operands.resize(1);
  op.operands[0].kind = Operand::Kind::kSlot;
  op.operands[0].slots = {add_slot(c10::IValue(tensor.item()))};
  trace_.graph.ops.push_back(std::move(op));
  trace_.ops.push_back({&op_info(number), false, false, false});
  return id;
}

ValueId Recorder::add_literal(const at::Tensor& tensor, ValueId source) {
  static const auto literal = ops::literal();
  const auto storage = trace_.values[static_cast<size_t>(source)].storage;
  const auto origin = uninitialised_by_[static_cast<size_t>(storage)];
  trace_.ops[static_cast<size_t>(origin)].literal_source = true;
  const auto id = add_fresh(tensor);
  graph::Op op{literal, {}, {id}, {}};
  op.operands.resize(3);
  for (auto& constant : op.operands) {
    constant.kind = Operand::Kind::kConstant;
  }
  op.operands[0].constant = ops::literal_bytes(tensor);
  op.operands[1].constant = tensor.sizes().vec();
  op.operands[2].constant = static_cast<int64_t>(tensor.scalar_type());
  trace_.graph.ops.push_back(std::move(op));
  trace_.ops.push_back({&op_info(literal), false, false, false});
  return id;
}

ValueId Recorder::operand(
    const OpInfo& info,
    const at::Tensor& tensor,
    bool written) {
  if (!tensor.defined()) {
    return kNoValue;
  }
  if (!is_recordable(tensor)) {
    fail(info.name + " has an operand that is not a strided tensor");
    return kNoValue;
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() &&
      ledger_.find_object(tensor) == kNoValue) {
    return add_wrapped_number(tensor);
  }
  const auto value = resolve(tensor);
  if (value == kNoValue) {
    fail(
        info.name + " uses a tensor of unknown origin, of sizes " +
        c10::str(tensor.sizes()) +
        ": not an argument, not reachable from a watched module, not made by "
        "an op of this call; register it as a buffer or declare it");
    return kNoValue;
  }
  const auto storage = trace_.values[static_cast<size_t>(value)].storage;
  if (!written && uninitialised_by_[static_cast<size_t>(storage)] >= 0 &&
      !trace_.storages[static_cast<size_t>(storage)].written &&
      tensor.numel() > 0 && info.reads_data) {
    const auto origin = uninitialised_by_[static_cast<size_t>(storage)];
    const auto& made = trace_.graph.ops[static_cast<size_t>(origin)].results;
    if (made.size() == 1 && made[0] == value && tensor.is_contiguous() &&
        tensor.device().is_cpu() &&
        static_cast<int64_t>(tensor.nbytes()) <= kMaxLiteralBytes) {
      return add_literal(tensor, value);
    }
    fail(
        info.name +
        " reads memory that was filled outside of tensor ops (data_ptr, an "
        "accessor, an Eigen map)");
    return kNoValue;
  }
  return value;
}

} // namespace temper::capture
