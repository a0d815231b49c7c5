// A folder of one test, gone with it.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "common/run_main.h"

namespace examples {

class TemporaryFolder : public testing::Test {
 protected:
  TemporaryFolder()
      : folder_(
            std::filesystem::temp_directory_path() /
            ("temper_examples_" + std::to_string(::getpid()))) {
    std::filesystem::create_directory(folder_);
  }
  ~TemporaryFolder() override {
    std::filesystem::remove_all(folder_);
  }

  std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }

  std::filesystem::path folder_;
};

/// The text of the UsageError that `code` throws.
inline std::string usage_error(const std::function<void()>& code) {
  try {
    code();
  } catch (const UsageError& e) {
    return e.what();
  }
  ADD_FAILURE() << "no UsageError";
  return {};
}

} // namespace examples
