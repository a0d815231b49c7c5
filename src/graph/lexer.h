// The tokens of a graph's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper::graph {

struct Token {
  enum class Kind : uint8_t {
    kWord, ///< input, f32, aten::add.Tensor, cuda:0, …
    kNumber, ///< Digits, perhaps with a point or an exponent; never signed.
    kString, ///< In quotes; `text` is what it stands for.
    kSign, ///< One of ( ) [ ] { } , = : % $ # ? @ - ->
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int32_t line = 1;
  int32_t column = 1;

  /// For messages: 'word', "string", or the end of the text.
  std::string described() const;
};

/// Throws `Error` with line, column, what was found and what was expected.
[[noreturn]] void fail_at(
    const Token& token,
    std::string_view found,
    std::string_view expected);

/// Splits text into tokens, one at a time. White space and comments, which go
/// from // to the end of the line, only separate.
class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  Token next();

 private:
  char peek(size_t ahead = 0) const;
  char take();
  void skip_space();
  void word(Token& token);
  void number(Token& token);
  void string(Token& token);

  std::string_view text_;
  size_t at_ = 0;
  int32_t line_ = 1;
  int32_t column_ = 1;
};

} // namespace temper::graph
