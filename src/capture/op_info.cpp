// Operator properties for capture, derived from schema, tags and `ops`.
#include "capture/op_info.h"

#include <ATen/core/jit_type.h>

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "graph/build.h"
#include "graph/slots.h"
#include "ops/hidden_writes.h"
#include "ops/op_info.h"

namespace temper::capture {
namespace {

using c10::TypeKind;

// The type inside an optional, by its real kind.
c10::TypePtr unwrap_optional(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) {
    return optional->getElementType();
  }
  return type;
}

ArgKind classify(const c10::Argument& argument) {
  const auto type = unwrap_optional(argument.type());
  switch (type->kind()) {
    case TypeKind::TensorType:
      return ArgKind::kTensor;
    case TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case TypeKind::StorageType:
    case TypeKind::StreamObjType:
    case TypeKind::AnyType:
    case TypeKind::ClassType:
    case TypeKind::FutureType:
    case TypeKind::QuantizerType:
      return ArgKind::kUnsupported;
    case TypeKind::ListType: {
      const auto element =
          unwrap_optional(type->castRaw<c10::ListType>()->getElementType());
      if (element->kind() == TypeKind::TensorType) {
        return ArgKind::kTensorList;
      }
      return graph::is_slot_argument(argument) ? ArgKind::kSlotList
                                               : ArgKind::kConstant;
    }
    default:
      return graph::is_slot_argument(argument) ? ArgKind::kSlot
                                               : ArgKind::kConstant;
  }
}

bool is_tensor_or_list(const c10::TypePtr& type) {
  const auto inner = unwrap_optional(type);
  if (inner->kind() == TypeKind::TensorType) {
    return true;
  }
  if (auto list = inner->cast<c10::ListType>()) {
    return unwrap_optional(list->getElementType())->kind() ==
        TypeKind::TensorType;
  }
  return false;
}

// In-place ops that change only how a tensor looks at its memory. Captured as
// the view op with the tensor object bound to the new value.
std::optional<c10::OperatorHandle> view_twin(const std::string& name) {
  constexpr std::array<std::pair<const char*, const char*>, 7> kTwins = {{
      {"aten::unsqueeze_", "aten::unsqueeze"},
      {"aten::squeeze_", "aten::squeeze"},
      {"aten::squeeze_.dim", "aten::squeeze.dim"},
      {"aten::squeeze_.dims", "aten::squeeze.dims"},
      {"aten::t_", "aten::t"},
      {"aten::transpose_", "aten::transpose.int"},
      {"aten::as_strided_", "aten::as_strided"},
  }};
  for (const auto& [in_place, view] : kTwins) {
    if (name == in_place) {
      return graph::find_op(view);
    }
  }
  return std::nullopt;
}

bool has_kernel_below_autograd(const c10::OperatorHandle& op) {
  return op.hasKernelForAnyDispatchKey(c10::DispatchKeySet(
             {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})) ||
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(
          c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// Exchanges the memory of its operand for one that is copied when written.
constexpr const char* kLazyClone = "aten::_lazy_clone";

std::unique_ptr<OpInfo> derive(const c10::OperatorHandle& op) {
  auto info = std::make_unique<OpInfo>();
  const auto& known = ops::info(op);
  const auto& schema = op.schema();
  info->name = graph::op_name(op);
  for (const auto& argument : schema.arguments()) {
    info->args.push_back(classify(argument));
  }
  info->writes = known.schema_writes;
  for (const auto& result : schema.returns()) {
    info->returns_tensors &= is_tensor_or_list(result.type());
  }
  info->returns_list = schema.returns().size() == 1 &&
      schema.returns()[0].type()->kind() == TypeKind::ListType;
  info->view = known.alias != ops::Alias::kFresh;
  info->absolute_view = known.absolute_view;
  info->rng = known.rng;
  info->data_dependent = known.data_dependent;
  info->as_view = view_twin(info->name);
  info->metadata_write =
      (known.changes_metadata && !info->as_view) || info->name == kLazyClone;
  info->decompose =
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
      !has_kernel_below_autograd(op);
  const auto& base = op.operator_name().name;
  info->uninitialised = base == "aten::empty" || base == "aten::empty_like" ||
      base == "aten::empty_strided" || base == "aten::new_empty" ||
      base == "aten::new_empty_strided" || base == "aten::empty_permuted";
  info->hidden_writes = ops::may_write_hidden(op);
  info->reads_data = !info->view && !base.ends_with("_like") &&
      !base.starts_with("aten::new_");
  info->equal = info->name == "aten::equal";
  info->synthetic = base.starts_with("temper::");
  info->foreign = known.foreign;
  return info;
}

} // namespace

const OpInfo& op_info(const c10::OperatorHandle& op) {
  // Keyed by name: a handle has no identity that outlives a deregistration.
  // The thread remembers where it met a name last, which spares the lock and
  // mostly the hash.
  using Map = std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>>;
  constexpr size_t kRemembered = 256;
  thread_local std::array<
      std::pair<const c10::OperatorName*, const Map::value_type*>,
      kRemembered>
      mine{};
  const auto& name = op.operator_name();
  // Entries of operators are some hundreds of bytes apart.
  auto& [address, known] =
      mine[(reinterpret_cast<uintptr_t>(&name) >> 6) % kRemembered];
  if (address == &name && known->first == name) {
    return *known->second;
  }
  static std::mutex mutex;
  static auto& all = *new Map();
  std::scoped_lock lock(mutex);
  auto it = all.find(name);
  if (it == all.end()) {
    it = all.emplace(name, derive(op)).first;
  }
  address = &name;
  known = &*it; // Stays where it is when the map grows.
  return *it->second;
}

} // namespace temper::capture
