// Which operators share memory with an operand beyond what schemas say.
#include <array>

#include "ops/op_tables.h"

namespace temper::ops::detail {

namespace {

// The schema says new memory so that autograd treats the result as no view:
// the operand is a temporary that nobody else sees.
constexpr std::array<std::string_view, 6> kUndeclaredViews = {
    "aten::_unsafe_view",
    "aten::_reshape_alias",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
    "aten::unsafe_chunk",
    "aten::lift",
};

constexpr std::array<std::string_view, 13> kMaybeViews = {
    "aten::reshape",
    "aten::reshape_as",
    "aten::contiguous",
    "aten::to",
    "aten::flatten",
    "aten::resolve_conj",
    "aten::resolve_neg",
    "aten::matrix_H",
    "aten::expand_as",
    "aten::sum_to_size",
    "aten::type_as",
    "aten::positive",
    "aten::dropout",
};

constexpr std::array<std::string_view, 1> kAbsoluteViews = {
    "aten::as_strided",
};

} // namespace

bool is_undeclared_view(std::string_view name) {
  return contains(kUndeclaredViews, name);
}

bool is_maybe_view(std::string_view name) {
  return contains(kMaybeViews, name);
}

bool is_absolute_view(std::string_view name) {
  return contains(kAbsoluteViews, name);
}

} // namespace temper::ops::detail
