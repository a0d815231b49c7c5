// What temper knows of module types: their sizes, so that their fields can be
// watched, and the fields that they declare.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

namespace torch::nn {
class Module;
}

namespace temper::dispatch {

/// The content of a declared field.
struct FieldContent {
  std::string bytes; ///< By value; compared byte for byte.
  std::vector<at::Tensor> tensors; ///< Reachable through the field, in order.
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
  ReadField read; ///< Empty: the field is ignored (TEMPER_IGNORE).
};

/// The declared fields of a module of the type for which this is recorded.
using DeclaredFields = std::vector<Field> (*)(const torch::nn::Module&);

struct ModuleType {
  size_t size = 0; ///< sizeof of the type; 0: unknown.
  /// One of LibTorch's own: heap contents of its options are not looked at.
  bool own = false;
  DeclaredFields fields = nullptr; ///< May be null.
};

/// What is known of the type `typeid(module)`; an unknown size if nothing is.
/// Exact: a subclass is not taken for its base. Thread-safe.
ModuleType module_type(const torch::nn::Module& module);

/// Records a type, for all its modules. `module` is known to its owner as
/// `type`, of `size` bytes: nothing happens if it is of a subclass.
/// Thread-safe.
void record_module_type(
    const torch::nn::Module& module,
    const std::type_info& type,
    size_t size,
    DeclaredFields fields = nullptr);

/// True iff this is one of LibTorch's modules that keep functions of the user
/// (only there can words that look like a std::function be one: others have
/// optionals whose unused bytes may look like anything).
bool holds_functions(const torch::nn::Module& module);

/// Fills memory in which an object is about to be constructed with zeros, so
/// that its padding holds no remains that pass for pointers. The compiler, to
/// which writing there is dead code, does not see inside.
void clear_storage(void* begin, size_t size);

} // namespace temper::dispatch
