// The shadow executor: turning a shadowed call into an eager one halfway.
#include <torch/csrc/autograd/node.h>

#include <algorithm>

#include "capture/old_contents.h"
#include "capture/raw_op.h"
#include "capture/shadow.h"
#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::ValueId;

bool has_layout(const at::TensorImpl& impl, const graph::Type& type) {
  if (impl.dim() != static_cast<int64_t>(type.sizes.size())) {
    return false;
  }
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    if (impl.sizes()[d] != type.sizes[d].size ||
        impl.strides()[d] != type.strides[d]) {
      return false;
    }
  }
  return true;
}

bool has_geometry(
    const at::TensorImpl& impl,
    const graph::Type& type,
    int64_t offset) {
  return impl.storage_offset() == offset && has_layout(impl, type);
}

bool is_foreign(const OpRecord& record) {
  return record.info->foreign;
}

} // namespace

bool ShadowRun::generator_touched() const {
  return generator_ && !(*generator_ == GeneratorState::current());
}

bool ShadowRun::materialise(const std::string& why) {
  if (materialised_) {
    return refused_.empty();
  }
  materialised_ = true;
  divergence_ = why;
  if (generator_touched()) {
    refused_ = kGeneratorTouched;
    refused_for_generator_ = true;
    return false;
  }
  const NoInterceptScope quiet;
  OldContents before;
  if (std::any_of(
          trace_.ops.begin(),
          trace_.ops.begin() + static_cast<ptrdiff_t>(next_),
          is_foreign)) {
    for (const auto& mutation : trace_.graph.mutations) {
      before.keep(trace_.bindings[static_cast<size_t>(mutation.input)].tensor(
          arguments_.originals()));
    }
  }
  std::vector<at::Tensor> values(trace_.graph.values.size());
  arguments_.share_memory();
  for (size_t i = 0; i < trace_.bindings.size(); ++i) {
    if (trace_.graph.inputs[i].role == graph::Role::kTangent) {
      continue;
    }
    values[static_cast<size_t>(trace_.graph.inputs[i].value)] =
        trace_.bindings[i].tensor(arguments_.originals());
  }
  try {
    for (size_t i = 0; i < next_; ++i) {
      execute(i, values);
    }
  } catch (const ops::UnexpectedLayout& error) {
    before.put_back(); // The versions are `restore`'s.
    refused_ = error.reason();
    return false;
  }
  // Shadows of arguments and their views: one storage with the real ones.
  for (size_t v = 0; v < values.size(); ++v) {
    const auto storage = trace_.values[v].storage;
    const auto input = trace_.storages[static_cast<size_t>(storage)].input;
    const auto object =
        input < 0 ? at::Tensor() : ledger_.object(static_cast<ValueId>(v));
    if (!object.defined()) {
      continue;
    }
    const auto argument = trace_.bindings[static_cast<size_t>(input)].argument;
    if (argument >= 0) {
      arguments_.move_home(object, static_cast<size_t>(argument));
    }
  }
  const auto& shadows = arguments_.shadows();
  for (size_t a = 0; a < shadows.size(); ++a) {
    if (shadows[a].defined()) {
      arguments_.move_home(shadows[a], a);
    }
  }
  return true;
}

void ShadowRun::execute(size_t op_index, std::vector<at::Tensor>& values) {
  const auto& op = trace_.graph.ops[op_index];
  if (op.op == ops::expect_layout()) {
    return; // Of shadows, which always have it.
  }
  const auto results =
      run_raw_op(trace_.graph, op, [&](ValueId id) -> const at::Tensor& {
        return values[static_cast<size_t>(id)];
      });
  for (size_t i = 0; i < op.results.size(); ++i) {
    const auto id = op.results[i];
    if (id == kNoValue || values[static_cast<size_t>(id)].defined()) {
      continue; // An operand that is returned.
    }
    if (is_foreign(trace_.ops[op_index]) &&
        !has_layout(
            *results[i].unsafeGetTensorImpl(),
            trace_.graph.values[static_cast<size_t>(id)].type)) {
      throw ops::UnexpectedLayout(
          trace_.ops[op_index].info->name, "its result has another layout");
    }
    adopt(results[i], id, values);
  }
}

// Makes `real` the content of the value: in the shadow's own storage and object
// where they are still alive.
void ShadowRun::adopt(
    const at::Tensor& real,
    ValueId value,
    std::vector<at::Tensor>& values) {
  const auto v = static_cast<size_t>(value);
  const auto& type = trace_.graph.values[v].type;
  const auto& info = trace_.values[v];
  const bool of_input =
      trace_.storages[static_cast<size_t>(info.storage)].input >= 0;
  auto storage = of_input ? c10::intrusive_ptr<c10::StorageImpl>()
                          : ledger_.storage(info.storage);
  if (!storage) {
    values[v] = real; // A view of an input, or nobody has a shadow of it.
    return;
  }
  if (storage->throw_on_immutable_data_ptr()) {
    auto* source = real.storage().unsafeGetStorageImpl();
    storage->clear_data_ptr_access_error_msg_();
    storage->set_allocator(source->allocator());
    storage->set_resizable(source->resizable());
    storage->set_data_ptr_noswap(
        source->set_data_ptr(at::DataPtr(nullptr, type.device)));
  }
  if (auto object = ledger_.object(value); object.defined() &&
      has_geometry(*object.unsafeGetTensorImpl(), type, info.offset)) {
    values[v] = std::move(object);
    return;
  }
  values[v] =
      make_shadow_tensor(c10::Storage(storage), type, info, /*is_view=*/false);
}

void ShadowRun::restore() {
  for (const auto& [tensor, version] : versions_) {
    // A copy shares the counter.
    auto counter = tensor.unsafeGetTensorImpl()->version_counter();
    counter.set_version(version);
  }
}

} // namespace temper::capture
