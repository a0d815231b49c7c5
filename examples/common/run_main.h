// What every example does around its work: errors become one clear line.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>

namespace examples {

/// An option or an input file that cannot be used. The message names the
/// subject, what was found, what was expected, and the remedy.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Returns what `body` returns. A `UsageError` is printed and becomes exit
/// code 2; any other exception is printed, without a C++ backtrace, and
/// becomes 1.
int run_main(const std::string& program, const std::function<int()>& body);

} // namespace examples
