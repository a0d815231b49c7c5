// Constants of a graph: their kinds, their text, their equality.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>

namespace temper::graph {

/// True iff an operand can be this constant: bool, int, double, complex,
/// string, device, or a list of one of these.
bool is_constant(const c10::IValue& value);

/// Equal in kind and in every bit: 1 is not 1.0, -0.0 is not 0.0, a NaN equals
/// itself. Anything that `is_constant` refuses equals nothing.
bool same_constant(const c10::IValue& a, const c10::IValue& b);

/// Appends the constant as text from which the parser gives it back in every
/// bit: `3`, `0.5`, `-inf`, `true`, `complex(0.0, 1.0)`, `"mean"`,
/// `device("cuda:0")`, `int[1, 2]`, `float[]`, …; the kind can be read off the
/// text. What is no constant is a bug of the caller.
void append_constant(std::string& text, const c10::IValue& value);

/// The pieces of the above.
void append_int(std::string& text, int64_t number);
void append_double(std::string& text, double number);
/// Quoted; quotes, backslashes and control characters are escaped.
void append_quoted(std::string& text, std::string_view bytes);

} // namespace temper::graph
