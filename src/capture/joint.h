// Joint traces: the forward part of a call with the backwards that were seen.
#pragma once

#include <cstdint>
#include <vector>

#include "capture/trace.h"

namespace temper::capture {

/// How a gradient lies in memory. Composite operators go by it (`reshape` is a
/// view or a copy): what became of one is wrong, or out of bounds, for another.
class GradientLayout {
 public:
  GradientLayout() = default;
  /// Of a gradient that can be recorded.
  explicit GradientLayout(const at::Tensor& gradient)
      : strides_(gradient.strides().vec()) {}
  /// True iff `gradient` (defined, of the same sizes) has this layout.
  bool is_of(const at::Tensor& gradient) const;
  /// The gradient itself if it has this layout, which has an element of memory
  /// for each of the gradient, else a copy that has it.
  at::Tensor applied(const at::Tensor& gradient) const;
  bool operator==(const GradientLayout&) const = default;

 private:
  std::vector<int64_t> strides_;
};

/// Carries out a gradient's lazy conjugation and negation, if it is defined and
/// has them. Where several come together it depends on their order whether the
/// sum does.
void resolve(at::Tensor& gradient);

/// Which gradients a backward has and which it needs.
struct BackwardPattern {
  int32_t first_step = 0; ///< The step of the chain where it begins.
  /// By output that requires grad: its gradient was defined when it entered.
  std::vector<bool> tangents;
  /// Likewise: of its gradient, if it was defined when the backward began.
  std::vector<GradientLayout> layouts;
  /// By input to which gradients flow: its gradient was asked for.
  std::vector<bool> needed;
  /// `autocast_state()` of the thread that called backward.
  int64_t autocast = 0;

  bool operator==(const BackwardPattern&) const = default;
};

/// A backward that a trace holds.
struct RecordedBackward {
  BackwardPattern pattern;
  /// For each step of the chain its first segment; then the segment past the
  /// last. Indices into the graph's segments.
  std::vector<int32_t> step_segments;
  /// By autograd node of the call: it read what the forward had saved, so it
  /// can't run again unless the graph is retained.
  std::vector<bool> readers;
  std::vector<bool> visited; ///< Likewise: it ran.
  /// By output that requires grad: of its gradient, if it was defined. Of those
  /// that come in later steps no elements share memory.
  std::vector<GradientLayout> layouts;
  /// One of them ran code of the user's (a custom autograd function). No shadow
  /// run proves that it does the same each time.
  bool user_code = false;
};

/// 0 where autocast is off on the CPU, else another number for each dtype.
int64_t autocast_state();

/// Notes where the forward part of a trace ends.
void end_forward(Trace& trace);

/// The trace without its backwards.
Trace forward_part(const Trace& trace);

/// True iff both forwards are the same ops on the same inputs with the same
/// numbers, in every field.
bool same_forward(const Trace& a, const Trace& b);

/// Adds a backward of `from` to `into`, whose forward part is the same, as one
/// more alternative, and returns where it is now. False, and nothing changed,
/// if it writes to memory of the forward or reads what another backward made.
bool append_backward(
    Trace& into,
    const Trace& from,
    RecordedBackward& backward);

} // namespace temper::capture
