// The backends that options can name.
#pragma once

#include <string>

#include "temper/options.h"

namespace temper::module {

/// Throws `Error` if there is no backend of this name. `subject` is for the
/// message: "cannot compile 'Net'".
void check_backend(const std::string& subject, const std::string& backend);

/// Throws `Error` for values that cannot be.
void check_options(const std::string& subject, const CompileOptions& options);

} // namespace temper::module
