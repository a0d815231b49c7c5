// The state of the default CPU generator, to see who touched it.
#pragma once

#include <ATen/core/MT19937RNGEngine.h>

#include <cstdint>
#include <optional>

namespace temper::capture {

/// The reason for calls in which random numbers were drawn or seeded past
/// operators.
extern const char* const kGeneratorTouched;

struct GeneratorState {
  at::mt19937_data_pod engine;
  std::optional<float> next_float;
  std::optional<double> next_double;

  static GeneratorState current();
  bool operator==(const GeneratorState& other) const;
  /// Puts this state into the default CPU generator.
  void restore() const;
};

} // namespace temper::capture
