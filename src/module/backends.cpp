// Which options and devices there can be.
#include "module/backends.h"

#include <string_view>

#include "base/error.h"
#include "codegen/backend.h"
#include "codegen/numerics.h"
#include "temper/device.h"

namespace temper {

namespace module {

namespace {

// "eager" hands no graph to anybody, so it is not registered.
constexpr std::string_view kEager = "eager";

std::string known_backends() {
  std::string names;
  for (const auto& name : codegen::backend_names()) {
    names += '\'' + name + "', ";
  }
  return names.append("or '").append(kEager).append("'");
}

void check_positive(
    const std::string& subject,
    const char* option,
    int64_t found) {
  TEMPER_CHECK(
      found >= 1,
      subject,
      ": option ",
      option,
      " is ",
      found,
      ", expected at least 1. To run nothing compiled use ",
      "CompileOptions().backend(\"eager\").");
}

} // namespace

void check_backend(const std::string& subject, const std::string& backend) {
  TEMPER_CHECK(
      backend == kEager || codegen::find_backend(backend),
      subject,
      ": there is no backend '",
      backend,
      "', expected ",
      known_backends(),
      ". Set it with CompileOptions().backend(\"aten\").");
}

void check_options(const std::string& subject, const CompileOptions& options) {
  check_backend(subject, options.backend());
  TEMPER_CHECK(
      codegen::numerics_of(options.numerics()),
      subject,
      ": option numerics is '",
      options.numerics(),
      "', expected 'accurate', 'eager' or 'fast'. The default is "
      "CompileOptions().numerics(\"accurate\").");
  check_positive(subject, "max_graphs", options.max_graphs());
  check_positive(subject, "max_signatures", options.max_signatures());
}

} // namespace module

DeviceSupport is_compile_supported(
    c10::Device device,
    const std::string& backend) {
  module::check_backend("cannot compile for '" + device.str() + "'", backend);
  // All backends so far leave kernels to ATen, on whatever device.
  DeviceSupport support;
  support.supported = !device.is_meta();
  support.reason = support.supported
      ? "backend '" + backend + "' runs ATen's own operators"
      : "tensors on 'meta' have no values to compute";
  return support;
}

} // namespace temper
