// How close to eager a compiled program computes: an option of `compile()`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace temper::codegen {

/// What a backend may do to the values. See `temper::CompileOptions`.
enum class Numerics : uint8_t {
  kAccurate, ///< Rounds as eager does; sums may be added in another order.
  kEager, ///< The same bits as eager.
  kFast, ///< Contraction and approximations.
};

/// By their values.
inline constexpr std::array<std::string_view, 3> kNumericsNames = {
    "accurate",
    "eager",
    "fast"};

/// "accurate", "eager", "fast".
constexpr std::string_view name_of(Numerics numerics) {
  return kNumericsNames.at(static_cast<size_t>(numerics));
}

/// The inverse; nothing for another name.
constexpr std::optional<Numerics> numerics_of(std::string_view name) {
  for (size_t i = 0; i < kNumericsNames.size(); ++i) {
    if (kNumericsNames.at(i) == name) {
      return static_cast<Numerics>(i);
    }
  }
  return std::nullopt;
}

} // namespace temper::codegen
