// What a backend makes of a graph: programs, and what passes between them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "program/program.h"

namespace temper::runtime {

/// A value that the forward run keeps for the backward.
struct Saved {
  enum class Kind : uint8_t {
    kInput, ///< `index` into the graph's inputs: an external tensor that eager
            ///< saved too (registered as a SavedVariable).
    kOutput, ///< `index` into the graph's outputs: likewise.
    kPrivate, ///< An intermediate or a private copy: `index` into the forward
              ///< program's outputs.
  };
  Kind kind = Kind::kPrivate;
  int32_t index = 0;
  /// kPrivate: the graph output that shares its memory, or -1. What the user
  /// does to that output changes this value too: eager's version check is due,
  /// so the caller ties their version counters and registers it.
  int32_t shares_output = -1;
  /// kInput: eager saved views of it only, not the tensor itself. They keep its
  /// memory where the user exchanges it (`set_data`, `to`).
  bool only_views = false;
};

/// One backward segment's program. Its inputs are, in this order:
/// the saved values `saved` (indices into `Artifact::saved`), the tangents
/// (graph input indices, in the order of `graph::Segment::tangents`), and the
/// carried values `carried_in`. Its outputs: the deliveries in order, then the
/// values carried out.
struct BackwardProgram {
  std::shared_ptr<const program::Program> program;
  std::vector<int32_t> saved;
  /// Numbers of values carried between segments.
  std::vector<int32_t> carried_in;
  std::vector<int32_t> carried_out;
};

/// Immutable, shared by call sites and threads.
struct Artifact {
  std::string hash; ///< The skeleton's, in hex.
  /// Inputs: the graph's non-tangent inputs in order. Outputs: graph outputs,
  /// then the contents of `as_output` mutations, then private saved values.
  /// A graph output that is such a mutated input itself comes as its content,
  /// too: the caller returns the input instead.
  std::shared_ptr<const program::Program> forward;
  int32_t num_outputs = 0; ///< Graph outputs.
  std::vector<Saved> saved;
  std::vector<BackwardProgram> segments; ///< As `graph::Graph::segments`.
  int32_t num_carried = 0;
};

} // namespace temper::runtime
