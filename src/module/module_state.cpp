// Compiling a module in place.
#include "temper/detail/module_state.h"

#include <torch/nn/module.h>

#include <utility>

#include "base/log.h"

namespace temper::detail {

namespace {

std::unique_ptr<Site> make_site(
    torch::nn::Module& self,
    const std::type_info& type,
    const CompileOptions& options) {
  return std::make_unique<Site>(
      name_of_type(type), options, [&self](State& state) {
        state.module(self);
      });
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
    const std::type_info& type,
    const CompileOptions& options) {
  if (site_) {
    site_->set_options(options);
  } else {
    site_ = make_site(self, type, options);
    armed_ = site_->enabled() ? site_.get() : nullptr;
  }
  is_copy_ = false;
}

void ModuleState::decompile() {
  if (armed_ != nullptr && !is_copy_ && !armed_->called()) {
    base::warn_once(
        "never called " + site_->name(), never_called(site_->name()));
  }
  armed_ = nullptr;
  site_.reset();
}

void ModuleState::copy(
    torch::nn::Module& self,
    const std::type_info& type,
    const ModuleState& other) {
  if (&other == this) {
    return;
  }
  decompile();
  if (other.site_) {
    compile(self, type, other.site_->options());
    is_copy_ = true;
  }
}

std::string ModuleState::explain(const std::type_info& type) const {
  if (!site_) {
    return "'" + name_of_type(type) +
        "' is not compiled: call compile() on it.\n";
  }
  std::string text = site_->explain();
  if (site_->enabled() && !site_->called()) {
    text += never_called(site_->name()) + '\n';
  }
  return text;
}

} // namespace temper::detail
