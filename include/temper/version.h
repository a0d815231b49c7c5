// The version of temper: of these headers, and of the library that is loaded.
#pragma once

#include <temper/export.h>

/// Version of these headers.
#define TEMPER_VERSION_MAJOR 0
#define TEMPER_VERSION_MINOR 1
#define TEMPER_VERSION_PATCH 0

namespace temper {

/// Version of the loaded libtemper.so, "major.minor.patch".
TEMPER_API const char* version();

/// Version of LibTorch that libtemper.so was built against, "2.15.0".
TEMPER_API const char* torch_version();

} // namespace temper
