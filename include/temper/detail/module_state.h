// What a temper::Module knows of its being compiled.
#pragma once

#include <functional>
#include <memory>

#include <temper/detail/site.h>

namespace temper::detail {

/// A module's call site, if it is compiled. Watches leave its bytes out.
class TEMPER_API ModuleState {
 public:
  ModuleState();
  ~ModuleState();
  ModuleState(const ModuleState&) = delete;
  ModuleState& operator=(const ModuleState&) = delete;

  /// Null: calls run plainly.
  Site* armed() const noexcept {
    return armed_;
  }
  /// Null: not compiled.
  Site* site() const noexcept {
    return site_.get();
  }

  void compile(torch::nn::Module& self, const CompileOptions& options);
  void decompile();
  /// As compiled as `other` is, with a call site of its own.
  void copy(torch::nn::Module& self, const ModuleState& other);
  std::string explain(const torch::nn::Module& self) const;

 private:
  std::unique_ptr<Site> site_;
  Site* armed_ = nullptr;
  bool is_copy_ = false; ///< Nobody asked for it, so nobody need call it.
};

} // namespace temper::detail
