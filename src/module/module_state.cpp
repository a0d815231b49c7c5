// Compiling a module in place.
#include "temper/detail/module_state.h"

#include <c10/util/StringUtil.h>
#include <torch/nn/module.h>

#include <utility>

#include "base/log.h"

namespace temper::detail {

namespace {

std::unique_ptr<Site> make_site(
    torch::nn::Module& self,
    std::string name,
    const CompileOptions& options) {
  return std::make_unique<Site>(
      std::move(name), options, [&self](State& state) { state.module(self); });
}

std::string never_called(const std::string& name) {
  return "'" + name +
      "' is compiled, but was never called itself: forward() is the raw "
      "function; call the module, as in net(x).";
}

} // namespace

ModuleState::ModuleState() = default;

ModuleState::~ModuleState() {
  decompile();
}

void ModuleState::compile(
    torch::nn::Module& self,
    const CompileOptions& options) {
  if (site_) {
    site_->set_options(options);
  } else {
    site_ = make_site(self, name_of_type(typeid(self)), options);
    armed_ = site_->enabled() ? site_.get() : nullptr;
  }
  is_copy_ = false;
}

void ModuleState::decompile() {
  // While an exception unwinds, the first call may have been about to come.
  if (armed_ != nullptr && !is_copy_ && !armed_->called() &&
      std::uncaught_exceptions() == 0) {
    base::warn_once(
        "never called " + site_->name(), never_called(site_->name()));
  }
  armed_ = nullptr;
  site_.reset();
}

void ModuleState::copy(torch::nn::Module& self, const ModuleState& other) {
  if (&other == this) {
    return;
  }
  decompile();
  if (other.site_) {
    // `self` may be under construction: the name is the other's.
    site_ = make_site(self, other.site_->name(), other.site_->options());
    armed_ = site_->enabled() ? site_.get() : nullptr;
    is_copy_ = true;
  }
}

std::string ModuleState::explain(const torch::nn::Module& self) const {
  if (!site_) {
    return c10::str(
        "'",
        name_of_type(typeid(self)),
        "' is not compiled: call compile() on it.\n");
  }
  std::string text = site_->explain();
  if (site_->enabled() && !site_->called()) {
    text += never_called(site_->name()) + '\n';
  }
  return text;
}

} // namespace temper::detail
