// Which of the recorded backwards one that has begun is.
#include "dispatch/backward_choice.h"

namespace temper::dispatch {
namespace {

using Asked = Arriving::Asked;

// How many gradients the recorded backward takes in; -1 if it isn't this one.
int compare(const Plan& plan, size_t backward, const Arriving& arriving) {
  const auto& traced = plan.autograd;
  const auto& pattern = plan.backwards[backward].pattern;
  if (pattern.first_step != arriving.first_step ||
      pattern.autocast != arriving.autocast) {
    return -1;
  }
  int tangents = 0;
  for (size_t o = 0; o < arriving.gradients.size(); ++o) {
    const bool comes = arriving.gradients[o];
    if (pattern.tangents[o]) {
      ++tangents;
      if (!comes && !plan.chain.runs[backward].delivers[o]) {
        return -1;
      }
      if (arriving.arrived[o].defined() &&
          !pattern.layouts[o].is_of(arriving.arrived[o])) {
        return -1;
      }
    } else if (comes) {
      // A gradient that leads to nothing that is asked for: eager's engine
      // does not follow it either.
      for (size_t i = 0; i < arriving.inputs.size(); ++i) {
        if (arriving.inputs[i] == Asked::kYes && traced.reach[o].inputs[i]) {
          return -1;
        }
      }
    }
  }
  for (size_t i = 0; i < arriving.inputs.size(); ++i) {
    bool reached = false;
    for (size_t o = 0; o < arriving.gradients.size(); ++o) {
      reached = reached || (pattern.tangents[o] && traced.reach[o].inputs[i]);
    }
    if (reached && arriving.inputs[i] != Asked::kHasNone &&
        pattern.needed[i] != (arriving.inputs[i] == Asked::kYes)) {
      return -1;
    }
  }
  return tangents;
}

} // namespace

std::optional<BackwardChoice> choose_backward(
    const Plan& plan,
    const Arriving& arriving) {
  std::optional<BackwardChoice> best;
  int best_tangents = -1;
  for (size_t b = 0; b < plan.backwards.size(); ++b) {
    if (const auto tangents = compare(plan, b, arriving);
        tangents > best_tangents) {
      best = BackwardChoice{static_cast<int32_t>(b), {}};
      best_tangents = tangents;
    }
  }
  if (best) {
    const auto& pattern =
        plan.backwards[static_cast<size_t>(best->backward)].pattern;
    for (size_t o = 0; o < arriving.gradients.size(); ++o) {
      best->ignored.push_back(!pattern.tangents[o] && arriving.gradients[o]);
    }
  }
  return best;
}

} // namespace temper::dispatch
