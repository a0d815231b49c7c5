// The words that stand for dtypes and roles in a graph's text.
#include "graph/names.h"

#include <array>
#include <utility>

namespace temper::graph {

namespace {

using c10::ScalarType;

constexpr std::array<std::pair<ScalarType, std::string_view>, 15> kDtypes = {{
    {ScalarType::Float, "f32"},
    {ScalarType::Double, "f64"},
    {ScalarType::Half, "f16"},
    {ScalarType::BFloat16, "bf16"},
    {ScalarType::Long, "i64"},
    {ScalarType::Int, "i32"},
    {ScalarType::Short, "i16"},
    {ScalarType::Char, "i8"},
    {ScalarType::Byte, "u8"},
    {ScalarType::UInt16, "u16"},
    {ScalarType::UInt32, "u32"},
    {ScalarType::UInt64, "u64"},
    {ScalarType::Bool, "bool"},
    {ScalarType::ComplexFloat, "c64"},
    {ScalarType::ComplexDouble, "c128"},
}};

// In the order of the enumeration.
constexpr std::array<std::string_view, 8> kRoles = {
    "argument",
    "parameter",
    "buffer",
    "field",
    "captured",
    "tangent",
    "saved",
    "carried"};

} // namespace

std::string_view dtype_name(c10::ScalarType dtype) {
  for (const auto& [known, name] : kDtypes) {
    if (known == dtype) {
      return name;
    }
  }
  return c10::toString(dtype);
}

std::optional<c10::ScalarType> dtype_from_name(std::string_view name) {
  for (const auto& [known, text] : kDtypes) {
    if (text == name) {
      return known;
    }
  }
  for (int i = 0; i < c10::NumScalarTypes; ++i) {
    const auto dtype = static_cast<ScalarType>(i);
    if (name == c10::toString(dtype) && dtype != ScalarType::Undefined) {
      return dtype;
    }
  }
  return std::nullopt;
}

std::string_view role_name(Role role) {
  return kRoles.at(static_cast<size_t>(role));
}

std::optional<Role> role_from_name(std::string_view name) {
  for (size_t i = 0; i < kRoles.size(); ++i) {
    if (kRoles[i] == name) {
      return static_cast<Role>(i);
    }
  }
  return std::nullopt;
}

} // namespace temper::graph
