// Throwing the two errors of temper: the user's and temper's own.
#include "base/error.h"

#include <string_view>

namespace temper {

Error::Error(const std::string& message)
    : c10::Error("temper: " + message, /*backtrace=*/nullptr) {}

// Out of line, as the one place where the class's type information lives.
Error::~Error() = default;

InternalError::InternalError(const std::string& message)
    : c10::Error(
          "temper: internal error: " + message +
              "\nThis is a bug in temper, not in your program: please report "
              "it with this message. TEMPER_DISABLE=1 runs without temper.",
          /*backtrace=*/nullptr) {}

InternalError::~InternalError() = default;

namespace base {

namespace {

// "src/graph/verifier.cpp": what lies above is of the machine that built it.
std::string_view inside_repository(std::string_view file) {
  const size_t at = file.rfind("/src/");
  return at == std::string_view::npos ? file : file.substr(at + 1);
}

} // namespace

void throw_error(const std::string& message) {
  throw Error(message);
}

void throw_internal(
    const char* file,
    int line,
    const char* condition,
    const std::string& message) {
  const std::string what =
      message.empty() ? c10::str("expected ", condition) : message;
  throw InternalError(
      c10::str(what, " (", inside_repository(file), ":", line, ")"));
}

} // namespace base
} // namespace temper
