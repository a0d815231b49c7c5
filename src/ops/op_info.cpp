// Derives an OpInfo from schema, tags and tables, and remembers it.
#include "ops/op_info.h"

#include <ATen/core/enum_tag.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "ops/data_dependence.h"
#include "ops/op_tables.h"

namespace temper::ops {

namespace {

bool is_tensor_like(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::OptionalType:
      return is_tensor_like(
          type->expectRef<c10::OptionalType>().getElementType());
    case c10::TypeKind::ListType:
      return is_tensor_like(type->expectRef<c10::ListType>().getElementType());
    default:
      return false;
  }
}

int32_t first_tensor_operand(const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (is_tensor_like(schema.arguments()[i].type())) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

// The operand whose alias set a non-writing return shares, or -1.
int32_t schema_view_operand(const c10::FunctionSchema& schema) {
  for (const c10::Argument& ret : schema.returns()) {
    if (ret.alias_info() == nullptr || ret.alias_info()->isWrite()) {
      continue;
    }
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && !alias->isWrite() &&
          alias->beforeSets() == ret.alias_info()->beforeSets()) {
        return static_cast<int32_t>(i);
      }
    }
    return first_tensor_operand(schema); // a wildcard set
  }
  return -1;
}

bool has_generator(const c10::FunctionSchema& schema) {
  for (const c10::Argument& argument : schema.arguments()) {
    c10::TypePtr type = argument.type();
    if (type->kind() == c10::TypeKind::OptionalType) {
      type = type->expectRef<c10::OptionalType>().getElementType();
    }
    if (type->kind() == c10::TypeKind::GeneratorType) {
      return true;
    }
  }
  return false;
}

// Makes a tensor from no data: `empty_like`, `new_zeros`, `arange`.
bool is_factory(const c10::FunctionSchema& schema, std::string_view name) {
  const std::string_view base = name.substr(name.find("::") + 2);
  return first_tensor_operand(schema) < 0 || base.ends_with("_like") ||
      base.starts_with("new_");
}

OpInfo derive(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = schema.name();
  const std::string ns = name.substr(0, name.find(':'));
  OpInfo result;

  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) {
      result.schema_writes.push_back(static_cast<int32_t>(i));
    }
  }
  const int32_t view_operand = schema_view_operand(schema);
  if (detail::is_maybe_view(name)) {
    result.alias = Alias::kMaybe;
    result.alias_operand = first_tensor_operand(schema);
  } else if (view_operand >= 0) {
    result.alias = Alias::kView;
    result.alias_operand = view_operand;
  } else if (detail::is_undeclared_view(name) && result.schema_writes.empty()) {
    result.alias = Alias::kView;
    result.alias_operand = first_tensor_operand(schema);
  }
  result.old_content = detail::old_content(name);
  result.absolute_view = detail::is_absolute_view(name);
  result.rng =
      has_generator(schema) || op.hasTag(at::Tag::nondeterministic_seeded);
  const bool own = ns == "aten" || ns == "prims" || ns == "temper";
  result.foreign = !own;
  result.impure = !own || detail::is_impure(name); // Collectives, too.
  result.cheap = own && !result.rng && op.hasTag(at::Tag::pointwise);
  result.droppable = !result.impure && !result.rng &&
      (result.alias != Alias::kFresh || ns == "temper" ||
       is_factory(schema, name) ||
       (result.cheap && !detail::checks_values(name)));
  result.data_dependent = may_depend_on_data(op);
  result.changes_metadata =
      op.hasTag(at::Tag::inplace_view) || detail::changes_metadata(name);
  return result;
}

struct Table {
  std::mutex mutex;
  // Values are pointers, so that references survive a rehash.
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>> infos;
};

} // namespace

const OpInfo& info(const c10::OperatorHandle& op) {
  // A cache of what is constant in the process; never destroyed.
  static Table& table = *new Table;
  const std::lock_guard lock(table.mutex);
  std::unique_ptr<OpInfo>& entry = table.infos[op.operator_name()];
  if (entry == nullptr) {
    entry = std::make_unique<OpInfo>(derive(op));
  }
  return *entry;
}

} // namespace temper::ops
