// The nets that are measured.
#pragma once

#include <vector>

#include "subject.h"

namespace bench {

/// A net by name; made only when it is measured.
struct Model {
  const char* name;
  Subject (*make)();
};

/// Small ones of the usual kinds.
std::vector<Model> small_models();
/// Of ordinary size.
std::vector<Model> ordinary_models();
/// So small that what is not arithmetic shows.
std::vector<Model> tiny_models();

} // namespace bench
