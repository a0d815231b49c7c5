// The tokens of a graph's text.
#include "graph/lexer.h"

#include "base/error.h"
#include "graph/constant.h"

namespace temper::graph {

namespace {

// Not <cctype>: the text means the same in every locale.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_word(char c) {
  return is_word_start(c) || is_digit(c);
}

int hex_digit(char c) {
  return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

} // namespace

std::string Token::described() const {
  switch (kind) {
    case Kind::kEnd:
      return "the end of the text";
    case Kind::kString: {
      std::string quoted;
      append_quoted(quoted, text);
      return quoted;
    }
    case Kind::kWord:
    case Kind::kNumber:
    case Kind::kSign:
      break;
  }
  return "'" + text + "'";
}

void fail_at(
    const Token& token,
    std::string_view found,
    std::string_view expected) {
  base::throw_error(c10::str(
      "graph text, line ",
      token.line,
      ", column ",
      token.column,
      ": found ",
      found,
      ", expected ",
      expected));
}

// '\0' beyond the end: no token contains it.
char Lexer::peek(size_t ahead) const {
  return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
}

char Lexer::take() {
  const char c = text_[at_++];
  if (c == '\n') {
    ++line_;
    column_ = 1;
  } else {
    ++column_;
  }
  return c;
}

void Lexer::skip_space() {
  while (at_ < text_.size()) {
    const char c = peek();
    if (c == '/' && peek(1) == '/') {
      while (at_ < text_.size() && peek() != '\n') {
        take();
      }
    } else if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
      take();
    } else {
      return;
    }
  }
}

void Lexer::word(Token& token) {
  token.kind = Token::Kind::kWord;
  while (is_word(peek()) || (peek() == '.' && is_word(peek(1))) ||
         (peek() == ':' && (is_word(peek(1)) || peek(1) == ':'))) {
    if (peek() == ':' && peek(1) == ':') {
      token.text += take();
    }
    token.text += take();
  }
}

void Lexer::number(Token& token) {
  token.kind = Token::Kind::kNumber;
  while (is_digit(peek()) || peek() == '.') {
    token.text += take();
  }
  if (peek() == 'e') {
    token.text += take();
    if (peek() == '+' || peek() == '-') {
      token.text += take();
    }
    while (is_digit(peek())) {
      token.text += take();
    }
  }
}

void Lexer::string(Token& token) {
  token.kind = Token::Kind::kString;
  take();
  while (true) {
    if (at_ == text_.size() || peek() == '\n') {
      fail_at(token, "a string without end", "a closing quote on its line");
    }
    const char c = take();
    if (c == '"') {
      return;
    }
    if (c != '\\') {
      token.text += c;
      continue;
    }
    const char escaped = peek();
    const int high = hex_digit(peek(1));
    const int low = hex_digit(peek(2));
    if (escaped == '"' || escaped == '\\') {
      token.text += take();
    } else if (escaped == 'n') {
      take();
      token.text += '\n';
    } else if (escaped == 'x' && high >= 0 && low >= 0) {
      take();
      take();
      take();
      token.text += static_cast<char>(high * 16 + low);
    } else {
      Token here;
      here.line = line_;
      here.column = column_ - 1;
      fail_at(here, "an unknown escape", R"(\", \\, \n or \x and two digits)");
    }
  }
}

Token Lexer::next() {
  skip_space();
  Token token;
  token.line = line_;
  token.column = column_;
  if (at_ == text_.size()) {
    return token;
  }
  const char c = peek();
  if (is_word_start(c)) {
    word(token);
  } else if (is_digit(c)) {
    number(token);
  } else if (c == '"') {
    string(token);
  } else if (c == '-' && peek(1) == '>') {
    token.kind = Token::Kind::kSign;
    token.text = "->";
    take();
    take();
  } else {
    token.kind = Token::Kind::kSign;
    token.text = take();
    if (std::string_view("()[]{},=:%$#?@-").find(c) == std::string_view::npos) {
      std::string quoted;
      append_quoted(quoted, token.text);
      fail_at(token, "the character " + quoted, "a token of the graph's text");
    }
  }
  return token;
}

} // namespace temper::graph
