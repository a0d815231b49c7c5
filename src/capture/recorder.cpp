// The recorder. For each op:
//  1. composite ops that reach us whole (inference mode) are decomposed;
//  2. its operands are resolved to values: known tensors, arguments and watched
//     tensors (which become graph inputs), numbers, small literals;
//  3. the op runs for real;
//  4. its results become values: the operand itself, a view of a known storage,
//     or new memory.
#include "capture/recorder.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/WrapDimMinimal.h>

#include <algorithm>

#include "capture/shadow_tensor.h"
#include "graph/build.h"
#include "ops/data_dependence.h"
#include "ops/hidden_writes.h"
#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::Operand;
using graph::ValueId;

// Constants are copied into the graph as text: keep them small.
constexpr int64_t kMaxLiteralBytes = 4096;

bool is_plain(const at::Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() &&
      tensor.unsafeGetTensorImpl()->has_storage() && !tensor.is_quantized();
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

at::Tensor on_meta(const graph::Type& type) {
  std::vector<int64_t> sizes;
  for (const auto& dim : type.sizes) {
    sizes.push_back(dim.size);
  }
  return at::empty_strided(
      sizes, type.strides, at::dtype(type.dtype).device(c10::kMeta));
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
      generator_(GeneratorState::current()) {
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
      trace_.unsupported += " (after '" + place_ + "')";
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
  if (is_plain(tensor)) {
    raw_.watch({c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
        tensor.storage().unsafeGetStorageImpl())});
  }
}

void Recorder::release_memory(c10::ArrayRef<at::Tensor> tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.defined() && is_plain(tensor)) {
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
  for (const auto& result : results) {
    if (result.defined() && is_plain(result)) {
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
          binding.tensor(arguments_)._version() - start_versions_[i];
    }
  }
}

int32_t Recorder::add_slot(const c10::IValue& value) {
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
  if (!watched) {
    return -1;
  }
  auto* impl = watched->tensor.unsafeGetTensorImpl();
  for (size_t i = 0; i < trace_.bindings.size(); ++i) {
    if (trace_.bindings[i].watched == impl) { // Never a tangent's: null.
      return static_cast<int32_t>(i);
    }
  }
  if (!is_plain(watched->tensor)) {
    return -1;
  }
  place_ = watched->path;
  add_input(watched->tensor, watched->role, watched->path, {-1, impl});
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
    // Also where only storage and geometry agree (`.data()`): same memory.
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
  if (!is_plain(tensor)) {
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
        if (!argument.isScalar()) {
          fail(info.name + " has a symbolic size");
          return false;
        }
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
  bool all_known_storage = true;
  for (size_t i = 0; i < count; ++i) {
    for_each_tensor(results[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) {
        op.results.push_back(kNoValue);
        return;
      }
      if (!is_plain(tensor)) {
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
}

// True iff an operand lives in an argument's storage.
bool Recorder::from_argument(const graph::Op& op) const {
  return std::any_of(
      op.operands.begin(), op.operands.end(), [&](const Operand& operand_in) {
        if (operand_in.kind != Operand::Kind::kValue) {
          return false;
        }
        const auto storage =
            trace_.values[static_cast<size_t>(operand_in.value)].storage;
        const auto input = trace_.storages[static_cast<size_t>(storage)].input;
        return input >= 0 &&
            trace_.bindings[static_cast<size_t>(input)].argument >= 0;
      });
}

// `equal` answers from data; of a tensor with itself it is an identity (which
// MultiheadAttention uses to recognise self-attention).
void Recorder::handle_equal(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet below,
    torch::jit::Stack* stack) {
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
  const RawAccess::InOperator in(raw_);
  if (failed()) {
    op.redispatchBoxed(below, stack);
    return;
  }
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
      fail("random numbers were drawn or seeded outside of tensor ops");
    }
    if (capture::op_info(recorded.op).absolute_view &&
        from_argument(recorded)) {
      fail(
          info.name +
          " of an argument counts from the start of its storage, which guards "
          "don't see");
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
  if (!failed()) {
    for (const auto& write : recorded.writes) {
      const auto& operand_in =
          recorded.operands[static_cast<size_t>(write.operand)];
      const auto& argument =
          (*stack)[base + static_cast<size_t>(write.operand)];
      if (write.element < 0) {
        written.emplace_back(argument.toTensor(), operand_in.value);
      }
    }
  }
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
  if (info.rng) {
    generator_ = GeneratorState::current();
  }
}

} // namespace temper::capture
