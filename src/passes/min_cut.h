// Which values of a forward graph to save so that the backward can have others.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace temper::passes {

/// Vertices with a cost each; what a vertex is computed from.
struct CutProblem {
  static constexpr int64_t kNever = int64_t{1} << 50;
  /// The cost of saving each vertex; kNever: it can't be saved.
  std::vector<int64_t> costs;
  /// (from, to): `to` is computed from `from`.
  std::vector<std::pair<int32_t, int32_t>> edges;
  std::vector<int32_t> given; ///< Can't be computed: saved, if needed at all.
  std::vector<int32_t> needed;
};

/// The vertices to save: of all sets of least cost that separate `given` from
/// `needed`, the one nearest to `needed`.
std::vector<int32_t> min_cut(const CutProblem& problem);

} // namespace temper::passes
