// Graphs as text for the tests, each with some feature that the others lack.
#pragma once

#include <string>
#include <string_view>

namespace temper::graph {

// A joint graph: parameters, an in-place op, a generator, two segments of
// which the first adds to the tangent that the second takes in.
constexpr std::string_view kJointText = R"(graph functional {
  slot $0 = 8
  slot $1 = 0.5
  object #0 = "generator" "default"
  input %0 : f32[$0=8, 64](64, 1) argument "x"
  input %1 : f32[32, 64](64, 1) parameter "fc.weight"
  input %2 : f32[?8, 32](32, 1) tangent "y" of output 0
  input %3 : f32[?8, 32](32, 1) tangent "hidden" of output 1
  %4 : f32[64, 32](1, 64) = aten::t(%1)
  %5 : f32[?8, 32](32, 1) = aten::mm(%0, %4)
  %6 : f32[?8, 32](32, 1) = aten::bernoulli.p(%5, $1, #0)
  %7 : f32[?8, 32](32, 1) = aten::mul_.Tensor(%5, %6) writes(0 -> %7)
  return %7, %5, none
  mutate input 1 = %1
  segment tangents(2) {
    %8 : f32[?8, 32](32, 1) = aten::mul.Tensor(%2, %6)
    deliver output 1 = %8
  }
  segment tangents(3) {
    %9 : f32[?8, 64](64, 1) = aten::mm(%3, %1)
    %10 : f32[32, 8](1, 32) = aten::t(%3)
    %11 : f32[32, 64](64, 1) = aten::mm(%10, %0)
    deliver input 0 = %9
    deliver input 1 = %11
  }
}
)";

// Two backwards, of which one runs: through both outputs, or through the second
// alone; that one sends an undefined gradient as well.
constexpr std::string_view kBackwardsText = R"(graph functional {
  input %0 : f32[8](1) argument "x"
  input %1 : f32[8](1) tangent "y" of output 0
  input %2 : f32[8](1) tangent "hidden" of output 1
  input %3 : f32[8](1) tangent "hidden" of output 1
  %4 : f32[8](1) = aten::exp(%0)
  %5 : f32[8](1) = aten::sin(%4)
  return %5, %4
  segment tangents(1) {
    %6 : f32[8](1) = aten::cos(%4)
    %7 : f32[8](1) = aten::mul.Tensor(%1, %6)
    deliver output 1 = %7
  }
  segment tangents(2) {
    %8 : f32[8](1) = aten::mul.Tensor(%2, %4)
    deliver input 0 = %8
  }
  segment of 1 tangents(3) {
    %9 : f32[8](1) = aten::mul.Tensor(%3, %4)
    deliver input 0 = %9
    deliver input 0 = none
  }
}
)";

// The raw form: a view and its base share a storage, an in-place op and an
// out= op return what they were given, a list op writes its elements.
constexpr std::string_view kRawText = R"(graph raw {
  slot $0 = 6
  slot $1 = 2
  slot $2 = 1.5
  slot $3 = 3
  input %0 : f32[$0=6, 4](4, 1) @7 argument "x"
  input %1 : f32[4](1) @9 buffer "running"
  %2 : f32[?2, 4](4, 1) @7 = aten::slice.Tensor(%0, 0, $1, none, $3)
  %2 = aten::mul_.Scalar(%2, $2) writes(0)
  %3 : f32[?2, 4](4, 1) @12 = aten::empty.memory_format($[1, 3], 6, none, none, none, none)
  %3 = aten::add.out(%2, %2, $2, %3) writes(3)
  aten::_foreach_add_.Scalar([%1, %3], $2) writes(0[0], 0[1])
  %4 : f32[?1, 4](4, 1) @12, %5 : f32[?1, 4](4, 1) @12 = aten::split.Tensor(%3, $3, 0)
  return %4, %5
  mutate input 0
  mutate input 1 as output
}
)";

// Every kind of constant and of type; no sound graph.
constexpr std::string_view kOddText = R"(graph functional {
  slot $0 = -9223372036854775808
  slot $1 = true
  slot $2 = complex(-0.0, inf)
  slot $3 = nan
  object #0 = "a \"quoted\"\nkind" "\\ \x01\x7f é"
  input %0 : bf16[]() on cuda:1 conj neg captured ""
  input %1 : Float8_e4m3fn[0, 1, ?5](5, 5, 1) on cpu:0 field "a.b"
  input %2 : c128[3](0) on meta saved "s"
  input %3 : bool[2, 3](-1, 7) carried "c"
  input %4 : u8[1](1) tangent "t"
  value %6 : i64[]()
  none, %5 : f64[]() = aten::mm(none, [], [%0, none], $[], $[2, 0], #0)
  aten::mm(1, -1, 1.0, -0.0, 1e+300, 5e-324, 0.1, inf, -inf, nan, nan("fff8000000000001"), true, false)
  aten::mm("", "a\"b\\c\nd\x00", complex(0.5, nan), device("cuda:1"), device("cpu"))
  aten::mm(int[], int[-1, 2], float[0.1, inf, nan], bool[true, false], complex[complex(1.0, 2.0)], str["a", ""], device[device("cpu"), device("cuda:0")], str[], float[])
  return
}
)";

/// `text` with every `from` replaced; `from` must occur.
inline std::string replaced(
    std::string_view text,
    std::string_view from,
    std::string_view to) {
  std::string result(text);
  size_t at = result.find(from);
  if (at == std::string::npos) {
    return "no '" + std::string(from) + "' to replace";
  }
  for (; at != std::string::npos; at = result.find(from, at + to.size())) {
    result.replace(at, from.size(), to);
  }
  return result;
}

} // namespace temper::graph
