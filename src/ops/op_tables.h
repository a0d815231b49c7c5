// The tables of the operator classes, each filled in in its own file. Names are
// "aten::name" and stand for all overloads, or "aten::name.overload".
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "ops/op_info.h"

namespace temper::ops::detail {

template <size_t N>
bool contains(
    const std::array<std::string_view, N>& names,
    std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Operators that return a view although their schema promises new memory.
/// The operand is the first tensor.
bool is_undeclared_view(std::string_view name);

/// Operators that return either an operand itself or new memory.
bool is_maybe_view(std::string_view name);

/// Views whose offset counts from the start of the storage.
bool is_absolute_view(std::string_view name);

/// Operators that change the metadata of an operand, beside those that have
/// the tag `inplace_view`.
bool changes_metadata(std::string_view name);

/// What an in-place operator makes of the content before it.
OldContent old_content(std::string_view name);

/// Elementwise operators that throw for some values (an integer division by
/// zero).
bool checks_values(std::string_view name);

/// Operators of LibTorch with effects that their schema does not show.
bool is_impure(std::string_view name);

} // namespace temper::ops::detail
