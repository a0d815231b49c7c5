// Which operators have effects that neither schema nor tags show.
#include <array>

#include "ops/op_tables.h"

namespace temper::ops::detail {

namespace {

// `inplace_view` tags the in-place views (t_, squeeze_, set_, resize_); these
// change metadata without it.
constexpr std::array<std::string_view, 12> kChangesMetadata = {
    "aten::set_data",
    "aten::requires_grad_",
    "aten::_resize_output_",
    "aten::resize_as_sparse_",
    "aten::sparse_resize_",
    "aten::sparse_resize_and_clear_",
    "aten::copy_sparse_to_sparse_",
    "aten::_coalesced_",
    "aten::retain_grad",
    "aten::_backward",
    "aten::resize_as_",
    "aten::resize_",
};

constexpr std::array<std::string_view, 4> kReplacesContent = {
    "aten::copy_",
    "aten::fill_",
    "aten::zero_",
    "aten::index_copy_",
};

constexpr std::array<std::string_view, 2> kAddsToContent = {
    "aten::add_",
    "aten::sub_",
};

constexpr std::array<std::string_view, 10> kChecksValues = {
    "aten::div",
    "aten::div_",
    "aten::floor_divide",
    "aten::floor_divide_",
    "aten::remainder",
    "aten::remainder_",
    "aten::fmod",
    "aten::fmod_",
    "aten::pow",
    "aten::pow_",
};

constexpr std::array<std::string_view, 10> kImpure = {
    "aten::_assert_async",
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::_functional_assert_async",
    "aten::_print",
    "aten::record_stream",
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
    "aten::from_file",
    "temper::expect_layout",
};

} // namespace

bool changes_metadata(std::string_view name) {
  return contains(kChangesMetadata, name);
}

OldContent old_content(std::string_view name) {
  if (contains(kReplacesContent, name)) {
    return OldContent::kUnused;
  }
  return contains(kAddsToContent, name) ? OldContent::kAddedTo
                                        : OldContent::kRead;
}

bool checks_values(std::string_view name) {
  return contains(kChecksValues, name);
}

bool is_impure(std::string_view name) {
  return contains(kImpure, name);
}

} // namespace temper::ops::detail
