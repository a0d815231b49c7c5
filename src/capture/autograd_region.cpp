// Finding the region of a traced call in the autograd graph.
//
// 1. The outputs that require grad give the ports where gradients enter.
// 2. From there the nodes are walked, not past the port of an input.
// 3. Outputs that the walk met inside begin steps.
// 4. What the run time asks later is counted: where gradients lead, and over
//    how many edges.
#include "capture/autograd_region.h"

#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace temper::capture {
namespace {

using graph::kNoValue;
using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() ||
      !node.post_hooks().empty() || !node.retains_grad_hooks().empty();
}

// The variable that a node accumulates into; null if it does something else.
const at::Tensor* accumulated_by(Node* node) {
  const auto* accumulate = dynamic_cast<AccumulateGrad*>(node);
  return accumulate == nullptr ? nullptr : &accumulate->variable;
}

// The edge of a graph input's tensor, as it was when the call began.
Edge edge_of_input(const Binding& binding, const TracedCall& call) {
  if (binding.argument >= 0) {
    const auto index = static_cast<size_t>(binding.argument);
    return call.arguments[index].requires_grad() ? call.argument_edges[index]
                                                 : Edge();
  }
  const at::Tensor tensor = binding.tensor(call.arguments);
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor)
                                : Edge();
}

// What gradients may flow to.
class InputPorts {
 public:
  InputPorts(Recorder& recorder, const TracedCall& call) : recorder_(recorder) {
    const auto& trace = recorder.trace();
    for (size_t i = 0; i < trace.bindings.size(); ++i) {
      if (trace.graph.inputs[i].role != graph::Role::kTangent) {
        learn(
            edge_of_input(trace.bindings[i], call),
            {static_cast<int32_t>(i), -1});
      }
    }
    for (size_t a = 0; a < call.arguments.size(); ++a) {
      if (call.arguments[a].defined()) {
        learn(call.argument_edges[a], {-1, static_cast<int32_t>(a)});
      }
    }
  }

  /// The graph input whose gradient arrives at `port`, or -1.
  int32_t find(const Port& port) {
    auto known = known_.find(port);
    if (known == known_.end()) {
      const auto* variable = accumulated_by(port.first);
      const auto added =
          variable == nullptr ? -1 : recorder_.input_of_watched(*variable);
      if (added < 0) {
        return -1;
      }
      known = known_.emplace(port, Input{added, -1}).first;
    }
    auto& input = known->second;
    if (input.index < 0) {
      input.index = recorder_.input_of_argument(input.argument);
    }
    return input.index;
  }

 private:
  struct Input {
    int32_t index = -1; ///< -1: a graph input only once a gradient flows there,
    int32_t argument = -1; ///< since no op read it (an identity Function).
  };

  void learn(const Edge& edge, Input input) {
    if (edge.is_valid()) {
      known_.emplace(Port{edge.function.get(), edge.input_nr}, input);
    }
  }

  Recorder& recorder_;
  PortMap<Input> known_;
};

class Walk {
 public:
  Walk(Recorder& recorder, const TracedCall& call, AutogradTrace& autograd)
      : recorder_(recorder), call_(call), autograd_(autograd) {}

  /// False if a result can't be recorded.
  bool find_outputs();
  /// False if the graph has what can't be recorded.
  bool find_nodes();
  void order_outputs();

  AutogradRegion region;

 private:
  bool may_end_at(const Port& port) const;

  Recorder& recorder_;
  const TracedCall& call_;
  AutogradTrace& autograd_;
  std::vector<Node*> roots_;
  std::vector<Node*> inner_outputs_; ///< Of outputs that the walk has met.
};

bool Walk::find_outputs() {
  for (size_t i = 0; i < call_.plans.size(); ++i) {
    const auto& plan = call_.plans[i];
    if (plan.kind != ResultPlan::Kind::kOutput || !plan.requires_grad ||
        plan.leaf) {
      continue;
    }
    const auto& result = call_.results[i];
    const at::Tensor base =
        plan.chain.empty() ? result : at::Tensor(result._base());
    const Port port{base.grad_fn().get(), base.output_nr()};
    if (port.first == nullptr) {
      recorder_.fail("a result without history requires grad");
      return false;
    }
    const auto [it, added] = region.outputs.try_emplace(
        port, static_cast<int32_t>(autograd_.outputs.size()));
    if (added) {
      autograd_.outputs.push_back({plan.index, 0});
      roots_.push_back(port.first);
    } else if (
        autograd_.outputs[static_cast<size_t>(it->second)].output !=
        plan.index) {
      recorder_.fail("two results share one gradient");
      return false;
    }
  }
  return true;
}

// Whether the walk may end at a port that is no input's and has nothing behind
// it; else the recorder has failed.
bool Walk::may_end_at(const Port& port) const {
  // A leaf made in the call (`x.detach().requires_grad_()`): its gradient is
  // seen by nobody, unless it is a result.
  const auto& variable = *accumulated_by(port.first);
  const bool is_result = std::any_of(
      call_.results.begin(),
      call_.results.end(),
      [&](const at::Tensor& result) { return result.is_same(variable); });
  if (is_result || recorder_.ledger().find_object(variable) == kNoValue) {
    recorder_.fail(
        "gradients flow to a tensor that is no input, argument or watched "
        "parameter");
    return false;
  }
  return true;
}

bool Walk::find_nodes() {
  InputPorts inputs(recorder_, call_);
  std::vector<Node*> stack = roots_;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (!region.nodes.try_emplace(node, region.nodes.size()).second) {
      continue;
    }
    if (has_hooks(*node)) {
      recorder_.fail("a hook on an intermediate tensor (" + node->name() + ")");
      return false;
    }
    for (const auto& edge : node->next_edges()) {
      if (!edge.is_valid()) {
        continue;
      }
      const Port port{edge.function.get(), edge.input_nr};
      if (region.outputs.contains(port)) {
        inner_outputs_.push_back(port.first);
      }
      if (const auto input = inputs.find(port); input >= 0) {
        if (region.inputs
                .try_emplace(
                    port, static_cast<int32_t>(autograd_.inputs.size()))
                .second) {
          autograd_.inputs.push_back(input);
        }
      } else if (accumulated_by(port.first) != nullptr) {
        if (!may_end_at(port)) {
          return false;
        }
      } else if (port.first->sequence_nr() < call_.first_sequence_number) {
        recorder_.fail("gradients flow to a tensor made before the call");
        return false;
      } else {
        stack.push_back(port.first);
      }
    }
  }
  return true;
}

// Outputs from which others are computed begin steps, in the order in which the
// engine reaches them (latest node first); what it reaches before the next one
// belongs to the step.
void Walk::order_outputs() {
  auto& inner = inner_outputs_;
  std::sort(inner.begin(), inner.end(), [](Node* a, Node* b) {
    return a->sequence_nr() > b->sequence_nr();
  });
  inner.erase(std::unique(inner.begin(), inner.end()), inner.end());
  autograd_.num_steps = static_cast<int32_t>(inner.size()) + 1;
  for (const auto& [port, index] : region.outputs) {
    auto& output = autograd_.outputs[static_cast<size_t>(index)];
    const Node* const own = port.first;
    output.step = static_cast<int32_t>(
        std::count_if(inner.begin(), inner.end(), [own](const Node* node) {
          return node == own || node->sequence_nr() > own->sequence_nr();
        }));
    for (const auto& [other, place] : region.outputs) {
      output.made +=
          other.first->sequence_nr() < port.first->sequence_nr() ? 1 : 0;
    }
  }
}

// Where a gradient goes from each output.
void find_reach(const AutogradRegion& region, AutogradTrace& autograd) {
  autograd.reach.resize(autograd.outputs.size());
  for (const auto& [start, output] : region.outputs) {
    auto& reach = autograd.reach[static_cast<size_t>(output)];
    reach.inputs.resize(autograd.inputs.size());
    reach.outputs.resize(autograd.outputs.size());
    reach.nodes.resize(region.nodes.size());
    std::vector<Node*> stack{start.first};
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      const auto place = region.nodes.find(node);
      if (place == region.nodes.end() || reach.nodes[place->second]) {
        continue;
      }
      reach.nodes[place->second] = true;
      for (const auto& edge : node->next_edges()) {
        const Port port{edge.function.get(), edge.input_nr};
        if (const auto input = region.inputs.find(port);
            input != region.inputs.end()) {
          reach.inputs[static_cast<size_t>(input->second)] = true;
          continue;
        }
        if (const auto inner = region.outputs.find(port);
            inner != region.outputs.end()) {
          reach.outputs[static_cast<size_t>(inner->second)] = true;
        }
        stack.push_back(port.first);
      }
    }
  }
}

void count_edges(const AutogradRegion& region, AutogradTrace& autograd) {
  autograd.edges.resize(static_cast<size_t>(autograd.num_steps));
  for (int32_t step = 0; step < autograd.num_steps; ++step) {
    auto& edges = autograd.edges[static_cast<size_t>(step)];
    edges.inputs.resize(autograd.inputs.size());
    edges.outputs.resize(autograd.outputs.size());
    std::vector<Node*> stack;
    for (const auto& [port, output] : region.outputs) {
      if (autograd.outputs[static_cast<size_t>(output)].step == step) {
        stack.push_back(port.first);
      }
    }
    std::vector<bool> seen(region.nodes.size());
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      const auto place = region.nodes.find(node);
      if (place == region.nodes.end() || seen[place->second]) {
        continue;
      }
      seen[place->second] = true;
      for (const auto& edge : node->next_edges()) {
        const Port port{edge.function.get(), edge.input_nr};
        if (const auto input = region.inputs.find(port);
            input != region.inputs.end()) {
          ++edges.inputs[static_cast<size_t>(input->second)];
        } else if (const auto inner = region.outputs.find(port);
                   inner != region.outputs.end()) {
          ++edges.outputs[static_cast<size_t>(inner->second)];
        } else {
          stack.push_back(port.first);
        }
      }
    }
  }
}

} // namespace

std::optional<AutogradRegion> find_region(
    Recorder& recorder,
    const TracedCall& call,
    AutogradTrace& autograd) {
  Walk walk(recorder, call, autograd);
  if (!walk.find_outputs() || autograd.outputs.empty() || !walk.find_nodes()) {
    return std::nullopt;
  }
  walk.order_outputs();
  find_reach(walk.region, autograd);
  count_edges(walk.region, autograd);
  return std::move(walk.region);
}

// Views are taken again when the program has run. The engine takes the node
// that was made last first: it must find them on the side of the region's nodes
// on which they were.
void find_late_views(const AutogradRegion& region, const TracedCall& call) {
  for (size_t i = 0; i < call.plans.size(); ++i) {
    auto& plan = call.plans[i];
    const auto& result = call.results[i];
    if (plan.chain.empty() || !result.requires_grad() ||
        result.grad_fn() == nullptr) {
      continue;
    }
    auto edge = torch::autograd::impl::gradient_edge(result);
    const auto made = edge.function->sequence_nr();
    for (size_t step = 0;
         step < plan.chain.size() && edge.function->num_outputs() > 0;
         ++step) {
      edge = edge.function->next_edge(0);
      if (!edge.is_valid()) {
        break;
      }
    }
    for (const auto& [node, place] : region.nodes) {
      const auto& edges = node->next_edges();
      if (std::find(edges.begin(), edges.end(), edge) != edges.end() &&
          node->sequence_nr() > made) {
        plan.late = true;
      }
    }
  }
}

bool will_visit(Node* node) {
  const auto* nodes = torch::autograd::get_current_graph_task_exec_info();
  if (nodes == nullptr || nodes->empty()) {
    return true; // The whole graph is visited.
  }
  const auto info = nodes->find(node);
  return info != nodes->end() && info->second.should_execute();
}

} // namespace temper::capture
