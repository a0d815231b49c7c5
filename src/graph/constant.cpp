// Constants of a graph: their kinds, their text, their equality.
#include "graph/constant.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace temper::graph {

namespace {

// The name of a list's element type; empty if no constant is such a list.
std::string_view element_name(const c10::IValue& list) {
  switch (list.toList().elementType()->kind()) {
    case c10::TypeKind::IntType:
      return "int";
    case c10::TypeKind::FloatType:
      return "float";
    case c10::TypeKind::BoolType:
      return "bool";
    case c10::TypeKind::ComplexType:
      return "complex";
    case c10::TypeKind::StringType:
      return "str";
    case c10::TypeKind::DeviceObjType:
      return "device";
    default:
      return "";
  }
}

bool is_scalar_constant(const c10::IValue& value) {
  return value.isInt() || value.isDouble() || value.isBool() ||
      value.isComplexDouble() || value.isString() || value.isDevice();
}

bool same_bits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

} // namespace

bool is_constant(const c10::IValue& value) {
  return is_scalar_constant(value) ||
      (value.isList() && !element_name(value).empty());
}

bool same_constant(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt()) {
    return b.isInt() && a.toInt() == b.toInt();
  }
  if (a.isDouble()) {
    return b.isDouble() && same_bits(a.toDouble(), b.toDouble());
  }
  if (a.isBool()) {
    return b.isBool() && a.toBool() == b.toBool();
  }
  if (a.isComplexDouble()) {
    if (!b.isComplexDouble()) {
      return false;
    }
    const auto x = a.toComplexDouble();
    const auto y = b.toComplexDouble();
    return same_bits(x.real(), y.real()) && same_bits(x.imag(), y.imag());
  }
  if (a.isString()) {
    return b.isString() && a.toStringRef() == b.toStringRef();
  }
  if (a.isDevice()) {
    return b.isDevice() && a.toDevice() == b.toDevice();
  }
  if (!a.isList() || !b.isList()) {
    return false;
  }
  const auto name = element_name(a);
  const auto x = a.toListRef();
  const auto y = b.toListRef();
  return !name.empty() && name == element_name(b) &&
      std::equal(x.begin(), x.end(), y.begin(), y.end(), same_constant);
}

void append_int(std::string& text, int64_t number) {
  std::array<char, 24> digits;
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
}

void append_double(std::string& text, double number) {
  if (std::isnan(number)) {
    text += "nan";
    const auto bits = std::bit_cast<uint64_t>(number);
    constexpr double kPlain = std::numeric_limits<double>::quiet_NaN();
    if (bits != std::bit_cast<uint64_t>(kPlain)) {
      std::array<char, 16> digits;
      const auto end =
          std::to_chars(digits.data(), digits.data() + digits.size(), bits, 16)
              .ptr;
      text += "(\"";
      text.append(digits.data(), end);
      text += "\")";
    }
    return;
  }
  // The shortest text that reads back as this number.
  std::array<char, 32> digits;
  const auto end =
      std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  text.append(digits.data(), end);
  if (std::isfinite(number) && std::all_of(digits.data(), end, [](char c) {
        return c == '-' || (c >= '0' && c <= '9');
      })) {
    text += ".0"; // An int has no point.
  }
}

void append_quoted(std::string& text, std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  text += '"';
  for (const char c : bytes) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += '\\';
      text += c;
    } else if (c == '\n') {
      text += "\\n";
    } else if (code < 0x20 || code == 0x7f) {
      text += "\\x";
      text += kDigits[code >> 4];
      text += kDigits[code & 15];
    } else {
      text += c;
    }
  }
  text += '"';
}

void append_constant(std::string& text, const c10::IValue& value) {
  if (value.isInt()) {
    append_int(text, value.toInt());
  } else if (value.isDouble()) {
    append_double(text, value.toDouble());
  } else if (value.isBool()) {
    text += value.toBool() ? "true" : "false";
  } else if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    text += "complex(";
    append_double(text, number.real());
    text += ", ";
    append_double(text, number.imag());
    text += ')';
  } else if (value.isString()) {
    append_quoted(text, value.toStringRef());
  } else if (value.isDevice()) {
    text += "device(";
    append_quoted(text, value.toDevice().str());
    text += ')';
  } else {
    TEMPER_INTERNAL(
        is_constant(value), "a graph has a constant of kind ", value.tagKind());
    text += element_name(value);
    text += '[';
    const char* separator = "";
    for (const c10::IValue& element : value.toListRef()) {
      text += separator;
      append_constant(text, element);
      separator = ", ";
    }
    text += ']';
  }
}

} // namespace temper::graph
