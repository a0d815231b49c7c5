// Sets an environment variable for as long as it lives.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

#include "base/env.h"

namespace temper::base {

class ScopedEnv {
 public:
  ScopedEnv(const char* name, const char* value) : name_(name) {
    if (const char* const old = std::getenv(name)) {
      old_ = old;
    }
    ::setenv(name, value, /*overwrite=*/1);
    reread_environment();
  }
  ~ScopedEnv() {
    if (old_) {
      ::setenv(name_, old_->c_str(), /*overwrite=*/1);
    } else {
      ::unsetenv(name_);
    }
    reread_environment();
  }
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

} // namespace temper::base
