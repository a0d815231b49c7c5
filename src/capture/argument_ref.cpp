// Comparison with the constants of a graph.
#include "capture/argument_ref.h"

#include <algorithm>

#include "graph/constant.h"

namespace temper::capture {

std::optional<size_t> ArgumentRef::list_size() const {
  if (const auto* list = std::get_if<c10::IntArrayRef>(&value_)) {
    return list->size();
  }
  const auto* boxed = std::get_if<const c10::IValue*>(&value_);
  if (boxed != nullptr && (*boxed)->isList()) {
    return (*boxed)->toListRef().size();
  }
  return std::nullopt;
}

ArgumentRef ArgumentRef::element(size_t index) const {
  if (const auto* list = std::get_if<c10::IntArrayRef>(&value_)) {
    return (*list)[index];
  }
  return ArgumentRef(std::get<const c10::IValue*>(value_)->toListRef()[index]);
}

bool ArgumentRef::same(const c10::IValue& constant) const {
  if (const auto* number = std::get_if<int64_t>(&value_)) {
    return constant.isInt() && constant.toInt() == *number;
  }
  if (const auto* flag = std::get_if<bool>(&value_)) {
    return constant.isBool() && constant.toBool() == *flag;
  }
  if (const auto* number = std::get_if<double>(&value_)) {
    return graph::same_constant(c10::IValue(*number), constant);
  }
  if (const auto* text = std::get_if<std::string_view>(&value_)) {
    return constant.isString() && constant.toStringRef() == *text;
  }
  if (const auto* boxed = std::get_if<const c10::IValue*>(&value_)) {
    return graph::same_constant(**boxed, constant);
  }
  const auto* list = std::get_if<c10::IntArrayRef>(&value_);
  if (list != nullptr && constant.isIntList()) {
    const auto expected = constant.toListRef();
    return std::equal(
        list->begin(),
        list->end(),
        expected.begin(),
        expected.end(),
        [](int64_t a, const c10::IValue& b) { return a == b.toInt(); });
  }
  return false;
}

} // namespace temper::capture
