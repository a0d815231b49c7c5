// Building a chain: nodes, edges, and what each recorded backward does there.
#include "dispatch/chain.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"

namespace temper::dispatch {
namespace {

using capture::AutogradTrace;
using capture::RecordedBackward;
using graph::Delivery;
using Kind = Chain::Target::Kind;

int32_t index_of(const std::vector<int32_t>& list, int32_t value) {
  const auto it = std::find(list.begin(), list.end(), value);
  TEMPER_INTERNAL(it != list.end());
  return static_cast<int32_t>(it - list.begin());
}

int32_t index_of_output(const AutogradTrace& autograd, int32_t output) {
  const auto& outputs = autograd.outputs;
  const auto it =
      std::find_if(outputs.begin(), outputs.end(), [&](const auto& candidate) {
        return candidate.output == output;
      });
  TEMPER_INTERNAL(it != outputs.end());
  return static_cast<int32_t>(it - outputs.begin());
}

Chain::Target target_of(const AutogradTrace& autograd, const Delivery& sent) {
  if (sent.target == Delivery::Target::kInput) {
    return {Kind::kInput, index_of(autograd.inputs, sent.index)};
  }
  return {Kind::kOutput, index_of_output(autograd, sent.index)};
}

// Gives each delivery of a segment an edge of the node, in order.
void connect(
    Chain::Node& node,
    Chain::Work& work,
    const AutogradTrace& autograd,
    const graph::Segment& segment) {
  std::vector<bool> taken(node.targets.size());
  for (const auto& delivery : segment.deliveries) {
    const auto target = target_of(autograd, delivery);
    size_t edge = 0;
    while (edge < node.targets.size() &&
           (taken[edge] || !(node.targets[edge] == target))) {
      ++edge;
    }
    if (edge == node.targets.size()) {
      node.targets.push_back(target);
      taken.push_back(false);
    }
    taken[edge] = true;
    work.targets.push_back(static_cast<int32_t>(edge));
  }
}

// True iff another value of the graph lies in the same memory.
bool shares_memory(const graph::Graph& joint, graph::ValueId id) {
  const auto shares = [&](graph::ValueId other) {
    return other != id && other != graph::kNoValue &&
        joint.values[static_cast<size_t>(other)].storage ==
        joint.values[static_cast<size_t>(id)].storage;
  };
  return std::any_of(
             joint.inputs.begin(),
             joint.inputs.end(),
             [&](const graph::Input& input) { return shares(input.value); }) ||
      std::any_of(joint.ops.begin(), joint.ops.end(), [&](const graph::Op& op) {
           return std::any_of(op.results.begin(), op.results.end(), shares);
         });
}

void find_shared(const graph::Graph& joint, Chain::Run& run) {
  // Where a gradient gets its last contribution, and how many it gets.
  std::map<std::pair<Delivery::Target, int32_t>, std::pair<int32_t, int>> sums;
  const auto deliveries = [&](const Chain::Work& work) {
    return work.segment < 0
        ? c10::ArrayRef<Delivery>()
        : c10::ArrayRef<Delivery>(
              joint.segments[static_cast<size_t>(work.segment)].deliveries);
  };
  for (size_t n = 0; n < run.nodes.size(); ++n) {
    for (const auto& delivery : deliveries(run.nodes[n])) {
      auto& [last, count] = sums[{delivery.target, delivery.index}];
      last = static_cast<int32_t>(n);
      ++count;
    }
  }
  for (auto& work : run.nodes) {
    const auto all = deliveries(work);
    for (size_t d = 0; d < all.size(); ++d) {
      const auto& [last, count] = sums[{all[d].target, all[d].index}];
      if (count > 1 && all[d].value != graph::kNoValue &&
          shares_memory(joint, all[d].value)) {
        work.shared.push_back({static_cast<int32_t>(d), last});
      }
    }
  }
}

void add_step(
    Chain& chain,
    int32_t step,
    const graph::Graph& joint,
    const AutogradTrace& autograd,
    const std::vector<RecordedBackward>& backwards) {
  const auto at = static_cast<size_t>(step);
  const size_t begin = chain.nodes.size();
  size_t count = 1;
  for (const auto& backward : backwards) {
    const auto& first = backward.step_segments;
    count = std::max(count, static_cast<size_t>(first[at + 1] - first[at]));
  }
  chain.first_of_step.push_back(static_cast<int32_t>(begin));
  chain.nodes.resize(begin + count);
  for (size_t n = begin; n < begin + count; ++n) {
    chain.nodes[n].step = step;
  }
  auto& entering = chain.nodes[begin].entering;
  for (size_t o = 0; o < autograd.outputs.size(); ++o) {
    if (autograd.outputs[o].step == step) {
      entering.push_back(static_cast<int32_t>(o));
    }
  }
  for (size_t b = 0; b < backwards.size(); ++b) {
    auto& run = chain.runs[b];
    run.nodes.resize(begin + count);
    const auto& first = backwards[b].step_segments;
    for (int32_t s = first[at]; s < first[at + 1]; ++s) {
      const size_t n = begin + static_cast<size_t>(s - first[at]);
      auto& work = run.nodes[n];
      work.segment = s;
      const auto& segment = joint.segments[static_cast<size_t>(s)];
      for (const auto tangent : segment.tangents) {
        size_t ordinal = 0;
        for (int32_t i = 0; i < tangent; ++i) {
          ordinal +=
              joint.inputs[static_cast<size_t>(i)].role == graph::Role::kTangent
              ? 1
              : 0;
        }
        work.tangents.push_back(index_of(
            entering,
            index_of_output(autograd, joint.tangent_outputs[ordinal])));
      }
      connect(chain.nodes[n], work, autograd, segment);
      for (const auto& delivery : segment.deliveries) {
        const auto target = target_of(autograd, delivery);
        if (target.kind == Kind::kOutput && delivery.value != graph::kNoValue) {
          run.delivers[static_cast<size_t>(target.index)] = true;
        }
      }
    }
  }
  // What else may be delivered.
  const auto add_targets = [&](Chain::Target target, int32_t edges) {
    int32_t known = 0;
    for (size_t n = begin; n < chain.nodes.size(); ++n) {
      const auto& targets = chain.nodes[n].targets;
      known += static_cast<int32_t>(
          std::count(targets.begin(), targets.end(), target));
    }
    for (; known < edges; ++known) {
      chain.nodes.back().targets.push_back(target);
    }
  };
  const auto& edges = autograd.edges[at];
  for (size_t i = 0; i < edges.inputs.size(); ++i) {
    add_targets({Kind::kInput, static_cast<int32_t>(i)}, edges.inputs[i]);
  }
  for (size_t i = 0; i < edges.outputs.size(); ++i) {
    if (autograd.outputs[i].step > step) {
      add_targets({Kind::kOutput, static_cast<int32_t>(i)}, edges.outputs[i]);
    }
  }
}

} // namespace

Chain make_chain(
    const graph::Graph& joint,
    const AutogradTrace& autograd,
    const std::vector<RecordedBackward>& backwards,
    const runtime::Artifact& artifact) {
  Chain chain;
  chain.runs.resize(backwards.size());
  for (auto& run : chain.runs) {
    run.delivers.resize(autograd.outputs.size());
  }
  for (int32_t step = 0; step < autograd.num_steps; ++step) {
    add_step(chain, step, joint, autograd, backwards);
  }
  chain.first_of_step.push_back(static_cast<int32_t>(chain.nodes.size()));
  chain.input_order.assign(autograd.inputs.size(), 0);
  uint64_t place = 0;
  for (const auto& segment : joint.segments) {
    for (const auto& delivery : segment.deliveries) {
      if (segment.backward == 0 && delivery.value != graph::kNoValue &&
          delivery.target == Delivery::Target::kInput) {
        chain.input_order[static_cast<size_t>(
            index_of(autograd.inputs, delivery.index))] = place++;
      }
    }
  }
  for (auto& run : chain.runs) {
    find_shared(joint, run);
    run.last_reader.assign(artifact.saved.size(), -1);
    run.last_carried.assign(static_cast<size_t>(artifact.num_carried), -1);
    for (size_t n = 0; n < chain.nodes.size(); ++n) {
      auto& work = run.nodes[n];
      std::vector<bool> used(chain.nodes[n].targets.size());
      for (const auto edge : work.targets) {
        used[static_cast<size_t>(edge)] = true;
      }
      for (size_t edge = 0; edge < used.size(); ++edge) {
        if (!used[edge]) {
          work.idle.push_back(static_cast<int32_t>(edge));
        }
      }
      if (work.segment >= 0) {
        const auto& segment =
            artifact.segments[static_cast<size_t>(work.segment)];
        for (const auto saved : segment.saved) {
          run.last_reader[static_cast<size_t>(saved)] = static_cast<int32_t>(n);
        }
        for (const auto carried : segment.carried_in) {
          run.last_carried[static_cast<size_t>(carried)] =
              static_cast<int32_t>(n);
        }
      }
    }
  }
  return chain;
}

} // namespace temper::dispatch
