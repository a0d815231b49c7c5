// Watches the state that a call site's code can see: the bytes of its modules
// and closures, and identity and metadata of their tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dispatch/known_modules.h"
#include "graph/graph.h"

namespace temper::dispatch {

/// Where a tensor is reachable from.
struct Place {
  graph::Role role = graph::Role::kField;
  std::string path; ///< "layers.0.weight", "mask (bytes 480..487 of 'net')".
};

/// The state of a `Watch` at one moment, cheap to compare with the present.
class Snapshot;

/// The watched roots of one call site. Not thread-safe while being built;
/// `take`, `matches` and `difference` may then be called by many threads.
/// Owns nothing: the roots must live as long as it is used.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(Watch&&) noexcept;
  Watch& operator=(Watch&&) noexcept;

  /// A module and its whole tree: registered children, and modules in declared
  /// fields. Fields are watched of types that are known (known_modules.h).
  void add_module(torch::nn::Module& root);
  /// Plain memory: a closure's captures, a variable that holds a module.
  void add_range(const void* begin, size_t size, std::string name);
  /// An object that watched pointers may point to without being opaque
  /// (it is watched by other means).
  void add_known_address(const void* address);
  /// A declared field of whatever is watched: see `Field`. (Fields that are
  /// declared for a module type need not be added: `record_module_type`.)
  void add_field(Field field);

  /// Takes the state. Walks the tree anew, so it sees added children.
  std::shared_ptr<const Snapshot> take() const;
  /// What of a state is still as it was then. Tensors are left out, so it says
  /// less than a state that was taken: calls that match it can be told from
  /// others, but nothing vouches for them.
  std::shared_ptr<const Snapshot> unchanged(const Snapshot& then) const;
  /// True iff nothing has changed since. Hot path: no allocation, no locks,
  /// ~1 ns per 64 bytes and ~8 ns per tensor. Reads what an eager call would
  /// read, so that other threads may train meanwhile as they may in eager mode.
  ///
  /// A tensor that lives in another storage than before (`set_data`, `to` there
  /// and back) still matches, as long as the same tensors share storages.
  bool matches(const Snapshot& then) const;
  /// The first difference, for people: "'decoder.0': field at bytes 16..23
  /// changed from 1 to 2", "'fc.weight'.requires_grad() was true, now false".
  /// Empty if none.
  std::string difference(const Snapshot& then) const;

 private:
  struct Roots;
  std::unique_ptr<Roots> roots_;
};

class Snapshot {
 public:
  virtual ~Snapshot() = default;
  /// Why guards can't vouch for this state (a module of unknown size, bytes
  /// that point to heap memory of unknown content), with the remedy; empty if
  /// they can.
  virtual const std::string& unguardable() const = 0;
  /// Where this very TensorImpl is reachable, if it is.
  virtual std::optional<Place> find(const at::Tensor& tensor) const = 0;
  /// The tensor that looks at the memory of `tensor`, a strided one, in the
  /// same way (`.data()` is such a copy), and where it is.
  virtual std::optional<std::pair<at::Tensor, Place>> find_memory(
      const at::Tensor& tensor) const = 0;
  /// True iff a tensor of it is gone: it can never match again.
  virtual bool is_gone() const = 0;
  /// All tensors reachable, each once: parameters, buffers, fields. A snapshot
  /// does not keep tensors alive; those that are gone are left out.
  virtual std::vector<std::pair<at::Tensor, Place>> tensors() const = 0;
};

} // namespace temper::dispatch
