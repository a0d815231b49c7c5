// The tokens under the parser's hand, and the constants among them.
#include "graph/token_reader.h"

#include <ATen/core/jit_type.h>

#include <bit>
#include <charconv>
#include <limits>
#include <utility>

#include "base/error.h"

namespace temper::graph {

namespace {

// False unless all of `text` is the number.
template <typename T, typename... Options>
bool read_all(const std::string& text, T& number, Options... options) {
  const char* const end = text.data() + text.size();
  const auto [at, error] =
      std::from_chars(text.data(), end, number, options...);
  return error == std::errc() && at == end;
}

c10::TypePtr element_type(const std::string& kind) {
  return kind == "int"    ? c10::TypePtr(c10::IntType::get())
      : kind == "float"   ? c10::TypePtr(c10::FloatType::get())
      : kind == "bool"    ? c10::TypePtr(c10::BoolType::get())
      : kind == "complex" ? c10::TypePtr(c10::ComplexType::get())
      : kind == "str"     ? c10::TypePtr(c10::StringType::get())
      : kind == "device"  ? c10::TypePtr(c10::DeviceObjType::get())
                          : nullptr;
}

} // namespace

void TokenReader::fail(std::string_view expected) const {
  fail_at(current_, current_.described(), expected);
}

Token TokenReader::take() {
  return std::exchange(current_, lexer_.next());
}

bool TokenReader::at_sign(std::string_view sign) const {
  return current_.kind == Token::Kind::kSign && current_.text == sign;
}

bool TokenReader::at_word(std::string_view word) const {
  return current_.kind == Token::Kind::kWord && current_.text == word;
}

bool TokenReader::accept_sign(std::string_view sign) {
  const bool found = at_sign(sign);
  if (found) {
    take();
  }
  return found;
}

bool TokenReader::accept_word(std::string_view word) {
  const bool found = at_word(word);
  if (found) {
    take();
  }
  return found;
}

void TokenReader::sign(std::string_view sign) {
  if (!accept_sign(sign)) {
    fail(c10::str("'", sign, "'"));
  }
}

void TokenReader::word(std::string_view word) {
  if (!accept_word(word)) {
    fail(c10::str("'", word, "'"));
  }
}

int64_t TokenReader::integer() {
  const bool negative = accept_sign("-");
  int64_t number = 0;
  // With its sign, since the smallest integer has no positive counterpart.
  if (current_.kind != Token::Kind::kNumber ||
      !read_all((negative ? "-" : "") + current_.text, number)) {
    fail("an integer of 64 bits");
  }
  take();
  return number;
}

int32_t TokenReader::index() {
  int32_t number = 0;
  if (current_.kind != Token::Kind::kNumber ||
      !read_all(current_.text, number)) {
    fail("a number of at most 31 bits");
  }
  take();
  return number;
}

std::string TokenReader::string() {
  if (current_.kind != Token::Kind::kString) {
    fail("a quoted string");
  }
  return take().text;
}

c10::IValue TokenReader::number(bool negative) {
  const std::string sign_text = negative ? "-" : "";
  if (current_.kind == Token::Kind::kNumber) {
    const std::string digits = sign_text + current_.text;
    if (digits.find_first_of(".e") == std::string::npos) {
      int64_t whole = 0;
      if (!read_all(digits, whole)) {
        fail("an integer of 64 bits");
      }
      take();
      return whole;
    }
    double real_number = 0;
    if (!read_all(digits, real_number)) {
      fail("a number");
    }
    take();
    return real_number;
  }
  if (accept_word("inf")) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return negative ? -kInf : kInf;
  }
  if (negative || !accept_word("nan")) {
    fail("a number");
  }
  if (!accept_sign("(")) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  uint64_t bits = 0;
  if (current_.kind != Token::Kind::kString ||
      !read_all(current_.text, bits, 16)) {
    fail("the bits of a NaN in hex, quoted");
  }
  take();
  sign(")");
  return std::bit_cast<double>(bits);
}

double TokenReader::real() {
  const Token first = current_;
  const c10::IValue value = number(accept_sign("-"));
  if (!value.isDouble()) {
    fail_at(first, "an integer", "a floating-point number, as in 1.0");
  }
  return value.toDouble();
}

c10::IValue TokenReader::constant_list(const std::string& kind) {
  c10::impl::GenericList elements(element_type(kind));
  list("]", [&] {
    const Token first = current_;
    const c10::IValue element = constant();
    const bool fits = kind == "int" ? element.isInt()
        : kind == "float"           ? element.isDouble()
        : kind == "bool"            ? element.isBool()
        : kind == "complex"         ? element.isComplexDouble()
        : kind == "str"             ? element.isString()
                                    : element.isDevice();
    if (!fits) {
      fail_at(first, first.described(), "an element of kind " + kind);
    }
    elements.push_back(element);
  });
  return elements;
}

c10::IValue TokenReader::constant() {
  if (current_.kind == Token::Kind::kString) {
    return take().text;
  }
  if (accept_sign("-")) {
    return number(true);
  }
  if (current_.kind == Token::Kind::kNumber || at_word("inf") ||
      at_word("nan")) {
    return number(false);
  }
  if (at_word("true") || at_word("false")) {
    return take().text == "true";
  }
  if (current_.kind != Token::Kind::kWord) {
    fail("a constant");
  }
  const Token first = current_;
  if (first.text != "complex" && element_type(first.text) == nullptr) {
    fail("a constant");
  }
  take();
  if (accept_sign("[")) {
    return constant_list(first.text);
  }
  if (first.text == "complex") {
    sign("(");
    const double re = real();
    sign(",");
    const double im = real();
    sign(")");
    return c10::complex<double>(re, im);
  }
  if (first.text == "device") {
    sign("(");
    const Token name = current_;
    const std::string text = string();
    sign(")");
    try {
      return c10::Device(text);
    } catch (const c10::Error&) {
      fail_at(name, name.described(), "a device, as in \"cuda:0\"");
    }
  }
  fail("'[', for a list");
}

} // namespace temper::graph
