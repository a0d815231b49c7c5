// What temper knows of module types: their sizes, so that their fields can be
// watched, and the fields that they declare.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "temper/detail/clean_memory.h"

namespace torch::nn {
class Module;
}

namespace temper::dispatch {

/// The content of a declared field.
struct FieldContent {
  std::string bytes; ///< By value; compared byte for byte.
  std::vector<at::Tensor> tensors; ///< Reachable through the field, in order.
  /// Reachable through the field, by identity; `bytes` names them, too.
  std::vector<const torch::nn::Module*> modules;
};

/// Appends the present content of a field. Must not throw and, so that guards
/// don't allocate, should only append.
using ReadField = std::function<void(FieldContent&)>;

/// A field that its owner declares. Its own bytes are neither compared nor
/// scanned for pointers; what `read` gives is compared instead.
struct Field {
  std::string name; ///< "scales".
  const void* begin = nullptr;
  size_t size = 0;
  ReadField read; ///< Empty: the field is ignored (TEMPER_IGNORE, padding).
};

/// The declared fields of a module of the type for which this is recorded.
using DeclaredFields =
    std::function<std::vector<Field>(const torch::nn::Module&)>;

struct ModuleType {
  size_t size = 0; ///< sizeof of the type.
  detail::Gaps padding; ///< Neither compared nor scanned.
  DeclaredFields fields; ///< May be empty.
  /// One of LibTorch's own: heap contents of its options are not looked at.
  bool own = false;
};

/// What is known of the type `typeid(module)`; null if nothing is. Exact: a
/// subclass is not taken for its base, nor a type for one of the same name in
/// another library. Thread-safe.
std::shared_ptr<const ModuleType> module_type(const torch::nn::Module& module);

/// Records a type, for all its modules, of watches that were made before, too.
/// LibTorch's own stay as they are. Thread-safe.
void record_module_type(const std::type_info& type, ModuleType known);

/// True iff this is one of LibTorch's modules that keep functions of the user
/// (only there can words that look like a std::function be one: others have
/// optionals whose unused bytes may look like anything).
bool holds_functions(const torch::nn::Module& module);

} // namespace temper::dispatch
