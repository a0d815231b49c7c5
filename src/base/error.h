// Throwing the two errors of temper: the user's and temper's own.
#pragma once

#include <c10/macros/Macros.h>
#include <c10/util/StringUtil.h>

#include <string>

#include "temper/error.h"

namespace temper::base {

/// Throws `Error`.
[[noreturn]] void throw_error(const std::string& message);

/// Throws `InternalError`, naming the place in temper's sources.
[[noreturn]] void throw_internal(
    const char* file,
    int line,
    const char* condition,
    const std::string& message);

} // namespace temper::base

/// Throws the user's error unless `condition` holds. The other arguments are
/// concatenated to the message (as in TORCH_CHECK): name the subject, what was
/// found, what was expected, the remedy. "temper: " is put in front.
#define TEMPER_CHECK(condition, ...)                        \
  do {                                                      \
    if (C10_UNLIKELY(!(condition))) {                       \
      ::temper::base::throw_error(::c10::str(__VA_ARGS__)); \
    }                                                       \
  } while (false)

/// Throws temper's own error unless `condition` holds: for what no input of a
/// user can cause. Further arguments, if any, are concatenated to the message.
#define TEMPER_INTERNAL(condition, ...)                             \
  do {                                                              \
    if (C10_UNLIKELY(!(condition))) {                               \
      ::temper::base::throw_internal(                               \
          __FILE__, __LINE__, #condition, ::c10::str(__VA_ARGS__)); \
    }                                                               \
  } while (false)
