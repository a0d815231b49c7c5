// Reading TEMPER_* environment variables.
//
// A value that cannot be read is reported once, on stderr, and the default is
// taken: a typo in a variable must not throw into a user's call.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace temper::base {

/// The variable's value; nothing if it is unset or empty.
std::optional<std::string> env_string(const char* name);

/// 1, true, on, yes or 0, false, off, no, in any case of letters.
bool env_flag(const char* name, bool fallback);

/// A decimal integer in [min, max].
int64_t env_int(
    const char* name,
    int64_t fallback,
    int64_t min = std::numeric_limits<int64_t>::min(),
    int64_t max = std::numeric_limits<int64_t>::max());

/// True iff TEMPER_DISABLE switches temper off: compiled modules then run the
/// user's code and nothing else. Read once, at the first question.
bool disabled();

/// For tests: has TEMPER_LOG and TEMPER_DISABLE read again.
void reread_environment();

} // namespace temper::base
