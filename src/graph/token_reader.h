// The tokens under the parser's hand, and the constants among them.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/lexer.h"

namespace temper::graph {

/// Looks one token ahead.
class TokenReader {
 public:
  explicit TokenReader(std::string_view text) : lexer_(text) {
    current_ = lexer_.next();
  }

  const Token& current() const {
    return current_;
  }
  /// Throws `Error`: found the current token.
  [[noreturn]] void fail(std::string_view expected) const;

  Token take();
  bool at_sign(std::string_view sign) const;
  bool at_word(std::string_view word) const;
  /// Takes the token if it is this one.
  bool accept_sign(std::string_view sign);
  bool accept_word(std::string_view word);
  /// Takes the token, which must be this one.
  void sign(std::string_view sign);
  void word(std::string_view word);

  /// An integer, perhaps negative.
  int64_t integer();
  /// An index or id: a non-negative integer of 31 bits.
  int32_t index();
  std::string string();

  /// What `append_constant` writes.
  c10::IValue constant();

  /// Calls `item` for each of a list's, up to and including the sign `close`.
  template <typename Item>
  void list(std::string_view close, const Item& item) {
    if (accept_sign(close)) {
      return;
    }
    do {
      item();
    } while (accept_sign(","));
    sign(close);
  }

 private:
  double real();
  c10::IValue number(bool negative);
  c10::IValue constant_list(const std::string& kind);

  Lexer lexer_;
  Token current_;
};

} // namespace temper::graph
