// The words that stand for dtypes and roles in a graph's text.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string_view>

#include "graph/graph.h"

namespace temper::graph {

/// "f32", "bf16", "i64", "bool", …; LibTorch's own name for the rare ones.
std::string_view dtype_name(c10::ScalarType dtype);
std::optional<c10::ScalarType> dtype_from_name(std::string_view name);

/// "argument", "parameter", …
std::string_view role_name(Role role);
std::optional<Role> role_from_name(std::string_view name);

} // namespace temper::graph
