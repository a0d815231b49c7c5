// Data dependence by LibTorch's tags, and what they say too much or too little.
#include "ops/data_dependence.h"

#include <ATen/core/enum_tag.h>

#include <string_view>

namespace temper::ops {

namespace {

// Results of other sizes for other lengths, although no tag says so.
constexpr std::string_view kUntagged = "aten::_pack_padded_sequence";

// `x.index({mask})` takes as many elements as the mask has set; indices that
// are integers say themselves how many.
bool has_mask(const c10::IValue& indices) {
  for (const c10::IValue& index : indices.toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) {
      continue;
    }
    const auto dtype = index.toTensor().scalar_type();
    if (dtype == c10::ScalarType::Bool || dtype == c10::ScalarType::Byte) {
      return true;
    }
  }
  return false;
}

} // namespace

bool may_depend_on_data(const c10::OperatorHandle& op) {
  return op.hasTag(at::Tag::data_dependent_output) ||
      op.hasTag(at::Tag::dynamic_output_shape) ||
      op.schema().name() == kUntagged;
}

bool depends_on_data(
    const c10::OperatorHandle& op,
    const c10::IValue* arguments) {
  const auto& name = op.operator_name();
  if (name.name == "aten::index" && name.overload_name == "Tensor") {
    return has_mask(arguments[1]);
  }
  if (name.name == "aten::repeat_interleave" &&
      name.overload_name == "Tensor") {
    return arguments[1].isNone(); // Else it is told how many there will be.
  }
  if (name.name == "aten::equal") {
    const auto& self = arguments[0].toTensor();
    const auto& other = arguments[1].toTensor();
    // It throws where dtypes or devices differ, whatever the sizes.
    return !self.defined() || !other.defined() ||
        self.sizes() == other.sizes() || self.dtype() != other.dtype() ||
        self.device() != other.device();
  }
  return true;
}

} // namespace temper::ops
