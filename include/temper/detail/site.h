// The door to temper's insides: call sites without their types.
//
// Templates of the public headers reduce a call to tensors and bytes and come
// here; what lies behind is compiled once, in the library.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <temper/counters.h>
#include <temper/detail/clean_memory.h>
#include <temper/export.h>
#include <temper/options.h>

namespace torch::nn {
class Module;
}

namespace temper::dispatch {
struct Call;
}

namespace temper::detail {

class Sink;
class State;

/// A flattened result: tensors, everything else as bytes, and what is needed
/// to make a result of this structure out of tensors.
struct Values {
  std::vector<at::Tensor> tensors;
  std::string structure;
  std::shared_ptr<const void> prototype;
  /// Why the call runs eagerly: the bytes do not tell all of the result, or
  /// the code did what no result tells. Then only this very result can be
  /// handed on. Empty: all is well.
  std::string rejected;
};

/// The user's code on other tensors.
using Code = c10::function_ref<Values(const std::vector<at::Tensor>&)>;
/// The user's code and arguments, for calls after the call. Keeps the site
/// where it can: a call is run again only while its state can be checked.
using Rerun = std::function<Values(const std::vector<at::Tensor>&)>;
using MakeRerun = c10::function_ref<Rerun()>;

/// The flattened arguments of one call. Buffers come from a stack that each
/// thread keeps, so that a call need not allocate.
class TEMPER_API Frame {
 public:
  Frame();
  ~Frame();
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  std::vector<at::Tensor>& tensors() const {
    return tensors_;
  }
  std::string& structure() const {
    return structure_;
  }

 private:
  friend class Site;
  explicit Frame(dispatch::Call& call);

  dispatch::Call& call_;
  std::vector<at::Tensor>& tensors_;
  std::string& structure_;
};

/// One compiled module or function.
class TEMPER_API Site : public std::enable_shared_from_this<Site> {
 public:
  /// `describe` says what state the code can see; it is asked at the first
  /// call. Throws `temper::Error` for options that cannot be.
  Site(
      std::string name,
      const CompileOptions& options,
      std::function<void(State&)> describe);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  Values call(const Frame& frame, Code code, MakeRerun make_rerun);
  /// Counts a call that the caller is about to run plainly. Throws under
  /// `fullgraph`.
  void run_plainly(const std::string& reason);

  const std::string& name() const;
  CompileOptions options() const;
  /// Equal options: nothing happens.
  void set_options(const CompileOptions& options);
  /// False iff TEMPER_DISABLE was set when the site was made.
  bool enabled() const;
  /// True iff a call has come in.
  bool called() const;
  /// Expires with the site.
  std::weak_ptr<const void> alive() const;
  Counters counters() const;
  std::string explain() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Flattens the object at an address; knows its type.
using FlattenAt = void (*)(const void* object, Sink& sink);

/// Collects the state that the code of a site can see.
class TEMPER_API State {
 public:
  virtual ~State();
  /// A module and its registered tree.
  virtual void module(torch::nn::Module& root) = 0;
  /// Plain memory, watched byte by byte. Tensors in it are recognised.
  virtual void bytes(const void* begin, size_t size, std::string name) = 0;
  /// An object watched by what it holds, not by its bytes.
  virtual void content(
      const void* begin,
      size_t size,
      std::string name,
      FlattenAt flatten) = 0;
  /// Memory that says nothing about results.
  virtual void ignore(const void* begin, size_t size) = 0;
  /// Pointers to this address are no secret: what is there is watched.
  virtual void known(const void* address) = 0;
};

/// What temper knows of a module type.
struct ModuleType {
  size_t size = 0;
  Gaps padding;
  /// Tells the fields that are not to be watched byte by byte.
  void (*fields)(const torch::nn::Module& module, State& state) = nullptr;
};

/// Makes a module type known, so that its objects can be watched whole.
TEMPER_API void know_module_type(
    const std::type_info& type,
    const ModuleType& known);

/// "Net" of `NetImpl`, "main()::{lambda(at::Tensor)#1}" of a closure.
TEMPER_API std::string name_of_type(const std::type_info& type);

/// Throws temper's error: the code that a pending backward must run again is
/// gone, and what it referred to may be, too.
[[noreturn]] TEMPER_API void throw_code_gone();

/// Throws temper's own error: a result was made for another type.
[[noreturn]] TEMPER_API void throw_wrong_prototype(const std::type_info& type);

} // namespace temper::detail
