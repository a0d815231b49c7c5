// The bytes that end a segment, from the environment.
#include "support/segments.h"

#include <cstdlib>
#include <iostream>

#include "capture/backward.h"

namespace temper::testing {
namespace {

const char* wanted() {
  const char* const value = std::getenv("TEMPER_TEST_BUCKET_BYTES");
  return value == nullptr || *value == '\0' ? nullptr : value;
}

} // namespace

bool install_bucket_bytes() {
  const char* const value = wanted();
  if (value == nullptr) {
    return false;
  }
  char* end = nullptr;
  const auto bytes = std::strtoull(value, &end, 10);
  if (*end != '\0') {
    std::cerr << "TEMPER_TEST_BUCKET_BYTES is '" << value
              << "', expected a number of bytes\n";
    std::exit(2);
  }
  capture::set_bucket_bytes(bytes);
  return true;
}

bool has_short_segments() {
  return wanted() != nullptr;
}

} // namespace temper::testing
