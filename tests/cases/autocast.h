// A region under autocast on the CPU.
#pragma once

#include <ATen/autocast_mode.h>

namespace temper::testing {

class Autocast {
 public:
  explicit Autocast(at::ScalarType dtype = at::kBFloat16) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, dtype);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }

  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

} // namespace temper::testing
