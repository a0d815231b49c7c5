// Which options and devices there can be.
#include "module/backends.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "temper/device.h"

namespace temper {

namespace module {

namespace {

constexpr std::array<std::string_view, 2> kBackends = {"aten", "eager"};

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
      std::find(kBackends.begin(), kBackends.end(), backend) != kBackends.end(),
      subject,
      ": there is no backend '",
      backend,
      "', expected 'aten' or 'eager'. Set it with "
      "CompileOptions().backend(\"aten\").");
}

void check_options(const std::string& subject, const CompileOptions& options) {
  check_backend(subject, options.backend());
  check_positive(subject, "max_graphs", options.max_graphs());
  check_positive(subject, "max_signatures", options.max_signatures());
}

} // namespace module

DeviceSupport is_compile_supported(
    c10::Device device,
    const std::string& backend) {
  module::check_backend("cannot compile for '" + device.str() + "'", backend);
  // Both backends leave kernels to ATen, on whatever device.
  DeviceSupport support;
  support.supported = !device.is_meta();
  support.reason = support.supported
      ? "backends 'aten' and 'eager' run ATen's own operators"
      : "tensors on 'meta' have no values to compute";
  return support;
}

} // namespace temper
