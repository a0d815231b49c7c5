// What the library says of its own version.
#include "temper/version.h"

#include <torch/headeronly/version.h>

#define TEMPER_TEXT_(x) #x
#define TEMPER_TEXT(x) TEMPER_TEXT_(x)

namespace temper {

const char* version() {
  return TEMPER_TEXT(TEMPER_VERSION_MAJOR) "." TEMPER_TEXT(
      TEMPER_VERSION_MINOR) "." TEMPER_TEXT(TEMPER_VERSION_PATCH);
}

const char* torch_version() {
  return TORCH_VERSION;
}

} // namespace temper
