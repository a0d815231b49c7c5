// The chain of autograd nodes of a compiled call.
//
// Node k runs segment k. Its inputs: if a step of the chain begins there, the
// gradients of that step's outputs; then one that is never defined and only
// makes node k wait for node k-1. Its outputs: the segment's deliveries, then
// the edge to node k+1. AccumulateGrad has the engine's highest priority, so a
// segment's gradients reach `.grad` before the next segment runs.
//
// A backward that the plan doesn't know (other gradients defined, more inputs
// needed, create_graph) re-runs the user's code eagerly and takes its gradients
// from autograd; the call site hears of it.
#include "dispatch/compiled_backward.h"

#include <ATen/ThreadLocalState.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "capture/generator_state.h"
#include "runtime/executor.h"

namespace temper::dispatch {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge;
using autograd::Node;
using autograd::variable_list;
using graph::Delivery;

class SegmentNode;

/// Shared by the nodes of one call.
struct ChainState {
  std::shared_ptr<const Plan> plan;
  std::vector<at::Tensor> saved; ///< By saved index: private ones.
  std::vector<autograd::SavedVariable> external; ///< By saved index.
  std::vector<int32_t> last_segment; ///< By saved index: its last reader.
  std::vector<char> released; ///< By segment.
  std::vector<SegmentNode*> nodes;
  std::vector<Edge> input_edges; ///< As `plan->autograd.inputs`.
  // One backward's progress.
  int task = -1;
  bool falling_back = false;
  std::vector<at::Tensor> carried;
  std::vector<at::Tensor> gradients; ///< Fallback: as `autograd.inputs`.
  // The fallback.
  BackwardFallback fallback;
  std::vector<at::Tensor> arguments;
  std::vector<int64_t> versions; ///< Of the graph inputs of the plan.
  std::optional<capture::GeneratorState> generator;
  std::optional<at::ThreadLocalState> thread_state;
  std::vector<at::Tensor> rerun_outputs; ///< As `autograd.outputs`.
  std::vector<at::Tensor> rerun_inputs; ///< As `autograd.inputs`.
};

int32_t num_segments(const Plan& plan) {
  return plan.has_backward
      ? static_cast<int32_t>(plan.artifact->segments.size())
      : plan.autograd.num_steps;
}

int32_t segment_of_step(const Plan& plan, int32_t step) {
  return plan.has_backward ? plan.step_segments[static_cast<size_t>(step)]
                           : step;
}

class SegmentNode : public Node {
 public:
  SegmentNode(std::shared_ptr<ChainState> state, int32_t segment)
      : state_(std::move(state)), segment_(segment) {}

  std::string name() const override {
    return "TemperBackward";
  }
  variable_list apply(variable_list&& gradients) override;
  void will_release_variables() override {
    releasing_ = true;
  }
  void release_variables() override {
    auto& state = *state_;
    state.released[static_cast<size_t>(segment_)] = 1;
    for (size_t i = 0; i < state.last_segment.size(); ++i) {
      if (state.last_segment[i] == segment_) {
        state.saved[i].reset();
        state.external[i].reset_data();
      }
    }
    if (segment_ + 1 == num_segments(*state.plan)) {
      state.arguments.clear();
      state.rerun_outputs.clear();
      state.rerun_inputs.clear();
    }
  }

  /// The outputs whose gradients enter here, as indices into
  /// `plan->autograd.outputs`; input slot i is that of `entering[i]`.
  std::vector<int32_t> entering;
  /// Where each output of this node goes.
  struct Target {
    enum class Kind : uint8_t {
      kDelivery, ///< `index` into the segment's deliveries.
      kExtra, ///< Fallback only: `index` into `autograd.inputs`.
      kExtraOutput, ///< Fallback only: `index` into the graph's outputs.
      kChain,
    } kind;
    int32_t index;
  };
  std::vector<Target> targets;

 private:
  void begin(const variable_list& gradients);
  bool known(const variable_list& gradients) const;
  variable_list run(variable_list&& gradients);
  void fall_back(const variable_list& gradients);
  void rerun(bool differentiable);
  variable_list deliver_fallback();
  bool delivers_to_output(const Target& target, int32_t output) const;

  std::shared_ptr<ChainState> state_;
  int32_t segment_;
  bool releasing_ = false;
  /// Fallback: inner gradients of later steps' outputs, by target.
  std::map<size_t, at::Tensor> fallback_outputs_;
};

bool delivers(
    const Plan& plan,
    int32_t segment,
    Delivery::Target target,
    int32_t index) {
  const auto& deliveries =
      plan.trace->graph.segments[static_cast<size_t>(segment)].deliveries;
  return std::any_of(
      deliveries.begin(), deliveries.end(), [&](const Delivery& delivery) {
        return delivery.target == target && delivery.index == index;
      });
}

bool delivers(const Plan& plan, int32_t input) {
  for (int32_t k = 0; k < num_segments(plan); ++k) {
    if (delivers(plan, k, Delivery::Target::kInput, input)) {
      return true;
    }
  }
  return false;
}

// True iff the plan's record is of such a backward.
bool SegmentNode::known(const variable_list& gradients) const {
  const auto& plan = *state_->plan;
  if (!plan.has_backward || at::GradMode::is_enabled()) {
    return false;
  }
  const auto* info = autograd::get_current_graph_task_exec_info();
  const auto needed = [&](size_t input) {
    const auto& edge = state_->input_edges[input];
    if (!edge.is_valid()) {
      return false;
    }
    if (info == nullptr || info->empty()) {
      return true;
    }
    const auto it = info->find(edge.function.get());
    return it != info->end() && it->second.should_execute();
  };
  for (size_t i = 0; i < state_->input_edges.size(); ++i) {
    if (!plan.pattern.needed[i] && needed(i)) {
      return false;
    }
  }
  for (size_t i = 0; i < entering.size(); ++i) {
    const auto output = static_cast<size_t>(entering[i]);
    const bool expected = plan.pattern.tangents[output];
    if (gradients[i].defined() == expected) {
      continue;
    }
    // A gradient that leads to nothing that is asked for: eager's engine does
    // not follow it either.
    bool matters = expected || plan.autograd.num_steps > 1;
    for (size_t k = 0; k < state_->input_edges.size() && !matters; ++k) {
      matters = plan.autograd.reaches[output][k] && needed(k);
    }
    if (matters) {
      return false;
    }
  }
  return true;
}

void SegmentNode::begin(const variable_list& gradients) {
  auto& state = *state_;
  const auto task = autograd::get_current_graph_task_id();
  if (task == state.task) {
    return;
  }
  state.task = task;
  state.carried.assign(
      state.plan->has_backward
          ? static_cast<size_t>(state.plan->artifact->num_carried)
          : 0,
      at::Tensor());
  // The first node of this backward: it must be the first of the record, too.
  int32_t first = 0;
  if (state.plan->has_backward) {
    while (first < segment_) {
      const auto& earlier = *state.nodes[static_cast<size_t>(first)];
      const bool had_any = std::any_of(
          earlier.entering.begin(), earlier.entering.end(), [&](int32_t o) {
            return state.plan->pattern.tangents[static_cast<size_t>(o)];
          });
      if (had_any) {
        break;
      }
      ++first;
    }
  }
  state.falling_back = first != segment_ || !known(gradients);
  state.gradients.assign(state.plan->autograd.inputs.size(), at::Tensor());
  if (!state.falling_back && state.fallback.count) {
    state.fallback.count();
  }
}

variable_list SegmentNode::apply(variable_list&& gradients) {
  begin(gradients);
  if (!state_->falling_back && !known(gradients)) {
    TEMPER_CHECK(
        false,
        "the gradients that reach a result of a compiled call changed in the "
        "middle of a backward; run it without compile()");
  }
  if (!state_->falling_back) {
    return run(std::move(gradients));
  }
  fall_back(gradients);
  return deliver_fallback();
}

variable_list SegmentNode::run(variable_list&& gradients) {
  auto& state = *state_;
  const auto& plan = *state.plan;
  const auto index = static_cast<size_t>(segment_);
  const auto& program = plan.artifact->segments[index];
  TORCH_CHECK(
      !state.released[index] || program.saved.empty(),
      autograd::ERR_BACKWARD_TWICE);
  std::vector<at::Tensor> inputs;
  inputs.reserve(
      program.saved.size() + entering.size() + program.carried_in.size());
  for (const auto saved : program.saved) {
    const auto s = static_cast<size_t>(saved);
    if (state.external[s].get_raw_data().has_value() &&
        state.external[s].get_raw_data()->defined()) {
      inputs.push_back(state.external[s].unpack());
    } else if (releasing_ && state.last_segment[s] == segment_) {
      inputs.push_back(std::move(state.saved[s]));
    } else {
      TORCH_CHECK(state.saved[s].defined(), autograd::ERR_BACKWARD_TWICE);
      inputs.push_back(state.saved[s]);
    }
  }
  const auto& graph = plan.trace->graph;
  for (const auto output : plan.tangent_outputs[index]) {
    size_t slot = 0;
    while (plan.autograd.outputs[static_cast<size_t>(entering[slot])].output !=
           output) {
      ++slot;
    }
    inputs.push_back(std::move(gradients[slot]));
  }
  gradients.clear();
  for (const auto carried : program.carried_in) {
    inputs.push_back(state.carried[static_cast<size_t>(carried)]);
  }
  std::vector<at::Tensor> outputs;
  {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    outputs = runtime::run(
        *program.program,
        std::move(inputs),
        plan.slots.data(),
        plan.trace->objects.data());
  }
  const auto deliveries = graph.segments[index].deliveries.size();
  for (size_t i = 0; i < program.carried_out.size(); ++i) {
    state.carried[static_cast<size_t>(program.carried_out[i])] =
        std::move(outputs[deliveries + i]);
  }
  variable_list result(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i].kind == Target::Kind::kDelivery) {
      result[i] = std::move(outputs[static_cast<size_t>(targets[i].index)]);
    }
  }
  return result;
}

// Runs the user's code again, as it was called, with autograd.
void SegmentNode::rerun(bool differentiable) {
  auto& state = *state_;
  const auto& plan = *state.plan;
  const auto& trace = *plan.trace;
  TEMPER_CHECK(
      state.fallback.rerun != nullptr,
      "a backward came that the compiled call does not know, and its code can't "
      "be run again; call backward the same way every time, or decompile()");
  TORCH_CHECK(
      !state.arguments.empty() || trace.bindings.empty() ||
          !state.released.back(),
      autograd::ERR_BACKWARD_TWICE);
  state.fallback.check_state();
  for (size_t i = 0; i < plan.forward_inputs.size(); ++i) {
    const auto tensor =
        input_tensor(plan, plan.forward_inputs[i], state.arguments);
    if (tensor.is_inference()) {
      continue;
    }
    TEMPER_CHECK(
        tensor._version() == state.versions[i],
        "input '",
        trace.graph.inputs[static_cast<size_t>(plan.forward_inputs[i])].name,
        "' of a compiled call was changed before a backward that the compiled "
        "call does not know; run the backward first, or call it under "
        "NoGradGuard if no backward is wanted");
  }
  // Arguments: the same memory, a history of their own that ends where this
  // node's gradients go.
  std::vector<at::Tensor> arguments = state.arguments;
  for (auto& argument : arguments) {
    if (argument.defined() && argument.requires_grad()) {
      argument = differentiable ? at::alias(argument)
                                : argument.detach().set_requires_grad(true);
    }
  }
  // What the code writes is put back; it draws what it drew.
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (const auto input : plan.mutated) {
    auto tensor = input_tensor(plan, input, state.arguments);
    written.emplace_back(tensor, tensor.detach().clone());
  }
  const auto now = capture::GeneratorState::current();
  if (state.generator) {
    state.generator->restore();
  }
  Result result;
  {
    const at::ThreadLocalStateGuard as_called(*state.thread_state);
    result = state.fallback.rerun(arguments);
  }
  if (state.generator) {
    now.restore();
  }
  for (auto& [tensor, content] : written) {
    const at::AutoDispatchBelowADInplaceOrView below;
    tensor.copy_(content);
  }
  state.rerun_outputs.clear();
  for (const auto& output : plan.autograd.outputs) {
    for (size_t r = 0; r < plan.results.size(); ++r) {
      const auto& planned = plan.results[r];
      if (planned.kind == capture::ResultPlan::Kind::kOutput &&
          planned.index == output.output && !planned.leaf) {
        state.rerun_outputs.push_back(
            planned.chain.empty() ? result.tensors[r]
                                  : at::Tensor(result.tensors[r]._base()));
        break;
      }
    }
  }
  state.rerun_inputs.clear();
  for (const auto input : plan.autograd.inputs) {
    state.rerun_inputs.push_back(input_tensor(plan, input, arguments));
  }
}

void SegmentNode::fall_back(const variable_list& gradients) {
  auto& state = *state_;
  const auto& plan = *state.plan;
  const bool differentiable = at::GradMode::is_enabled();
  variable_list outputs;
  variable_list tangents;
  for (size_t i = 0; i < entering.size(); ++i) {
    if (gradients[i].defined()) {
      outputs.emplace_back();
      tangents.push_back(gradients[i]);
    }
  }
  if (outputs.empty()) {
    return;
  }
  state.fallback.report(
      differentiable ? "double backward (create_graph) through the call"
                     : std::string());
  if (state.rerun_outputs.empty()) {
    rerun(differentiable);
  }
  outputs.clear();
  int32_t step = 0;
  for (size_t i = 0; i < entering.size(); ++i) {
    if (gradients[i].defined()) {
      const auto o = static_cast<size_t>(entering[i]);
      outputs.push_back(state.rerun_outputs[o]);
      step = plan.autograd.outputs[o].step;
    }
  }
  TEMPER_CHECK(
      plan.autograd.num_steps == 1 || !differentiable,
      "double backward through a compiled call that returns a value and "
      "something computed from it: not supported once it is compiled; call "
      "decompile() first");
  // Inner outputs of later steps end this step's gradients: theirs go through
  // the chain, so that hooks and captures on them see the whole.
  variable_list inputs = state.rerun_inputs;
  std::vector<size_t> cut;
  std::vector<unsigned> cut_hooks;
  for (size_t o = 0; o < plan.autograd.outputs.size(); ++o) {
    if (plan.autograd.outputs[o].step > step) {
      cut.push_back(o);
      inputs.push_back(state.rerun_outputs[o]);
    }
  }
  // Parameters' own hooks must not see gradients twice.
  std::vector<std::vector<std::unique_ptr<autograd::FunctionPreHook>>> hooks(
      state.rerun_inputs.size());
  for (size_t i = 0; i < state.rerun_inputs.size(); ++i) {
    if (state.rerun_inputs[i].is_leaf()) {
      std::swap(hooks[i], autograd::impl::hooks(state.rerun_inputs[i]));
    }
  }
  const auto put_back = [&] {
    for (size_t i = 0; i < state.rerun_inputs.size(); ++i) {
      if (state.rerun_inputs[i].is_leaf()) {
        std::swap(hooks[i], autograd::impl::hooks(state.rerun_inputs[i]));
      }
    }
  };
  std::vector<at::Tensor> cut_gradients(cut.size());
  for (size_t c = 0; c < cut.size(); ++c) {
    cut_hooks.push_back(state.rerun_outputs[cut[c]].register_hook(
        [&cut_gradients, c](const at::Tensor& gradient) {
          cut_gradients[c] = gradient;
          return at::zeros_like(gradient);
        }));
  }
  variable_list result;
  try {
    result = autograd::grad(
        outputs,
        inputs,
        tangents,
        /*retain_graph=*/true,
        differentiable,
        /*allow_unused=*/true);
  } catch (...) {
    put_back();
    throw;
  }
  put_back();
  for (size_t c = 0; c < cut.size(); ++c) {
    state.rerun_outputs[cut[c]].remove_hook(cut_hooks[c]);
  }
  for (size_t i = 0; i < state.gradients.size(); ++i) {
    if (!result[i].defined()) {
      continue;
    }
    state.gradients[i] = state.gradients[i].defined()
        ? at::add(state.gradients[i], result[i])
        : result[i];
  }
  for (size_t c = 0; c < cut.size(); ++c) {
    const auto output = plan.autograd.outputs[cut[c]].output;
    for (size_t t = 0; t < targets.size(); ++t) {
      if (delivers_to_output(targets[t], output)) {
        fallback_outputs_[t] = cut_gradients[c];
        break;
      }
    }
  }
}

bool SegmentNode::delivers_to_output(const Target& target, int32_t output)
    const {
  if (target.kind == Target::Kind::kExtraOutput) {
    return target.index == output;
  }
  if (target.kind != Target::Kind::kDelivery) {
    return false;
  }
  const auto& delivery =
      state_->plan->trace->graph.segments[static_cast<size_t>(segment_)]
          .deliveries[static_cast<size_t>(target.index)];
  return delivery.target == Delivery::Target::kOutput &&
      delivery.index == output;
}

variable_list SegmentNode::deliver_fallback() {
  auto& state = *state_;
  const auto& plan = *state.plan;
  variable_list result(targets.size());
  // With several steps a later one may add to an input's gradient: the last
  // node hands everything over.
  const bool now =
      plan.autograd.num_steps == 1 || segment_ + 1 == num_segments(plan);
  for (size_t t = 0; t < targets.size(); ++t) {
    const auto& target = targets[t];
    if (const auto it = fallback_outputs_.find(t);
        it != fallback_outputs_.end()) {
      result[t] = it->second;
      continue;
    }
    int32_t input = -1;
    if (target.kind == Target::Kind::kExtra) {
      input = target.index;
    } else if (
        target.kind == Target::Kind::kDelivery &&
        plan.autograd.num_steps == 1) {
      const auto& delivery =
          plan.trace->graph.segments[static_cast<size_t>(segment_)]
              .deliveries[static_cast<size_t>(target.index)];
      const auto it = std::find(
          plan.autograd.inputs.begin(),
          plan.autograd.inputs.end(),
          delivery.index);
      input = static_cast<int32_t>(it - plan.autograd.inputs.begin());
    }
    if (now && input >= 0) {
      result[t] = std::move(state.gradients[static_cast<size_t>(input)]);
    }
  }
  fallback_outputs_.clear();
  return result;
}

} // namespace

void attach_backward(
    const std::shared_ptr<const Plan>& plan_pointer,
    const std::vector<at::Tensor>& arguments,
    std::vector<at::Tensor>& outputs,
    std::vector<at::Tensor> private_values,
    BackwardFallback fallback) {
  const auto& plan = *plan_pointer;
  auto state = std::make_shared<ChainState>();
  state->plan = plan_pointer;
  state->fallback = std::move(fallback);
  state->arguments = arguments;
  for (const auto input : plan.forward_inputs) {
    const auto tensor = input_tensor(plan, input, arguments);
    state->versions.push_back(tensor.is_inference() ? 0 : tensor._version());
  }
  for (const auto input : plan.autograd.inputs) {
    const auto tensor = input_tensor(plan, input, arguments);
    state->input_edges.push_back(
        tensor.requires_grad() ? autograd::impl::gradient_edge(tensor)
                               : Edge());
  }
  const auto count = num_segments(plan);
  state->released.assign(static_cast<size_t>(count), 0);
  std::vector<c10::intrusive_ptr<SegmentNode>> nodes;
  for (int32_t k = 0; k < count; ++k) {
    nodes.push_back(c10::make_intrusive<SegmentNode>(state, k));
    state->nodes.push_back(nodes.back().get());
  }
  // Inputs of the nodes.
  for (int32_t step = 0; step < plan.autograd.num_steps; ++step) {
    const auto k = static_cast<size_t>(segment_of_step(plan, step));
    for (size_t o = 0; o < plan.autograd.outputs.size(); ++o) {
      if (plan.autograd.outputs[o].step == step) {
        nodes[k]->entering.push_back(static_cast<int32_t>(o));
        nodes[k]->add_input_metadata(
            outputs[static_cast<size_t>(plan.autograd.outputs[o].output)]);
      }
    }
  }
  for (auto& node : nodes) {
    node->add_input_metadata(Node::undefined_input{});
  }
  // Outputs of the nodes.
  const auto edge_to_output = [&](int32_t output) {
    for (const auto& node : nodes) {
      for (size_t slot = 0; slot < node->entering.size(); ++slot) {
        if (plan.autograd.outputs[static_cast<size_t>(node->entering[slot])]
                .output == output) {
          return Edge(node, static_cast<uint32_t>(slot));
        }
      }
    }
    return Edge();
  };
  using Kind = SegmentNode::Target::Kind;
  // Last node first: the engine wants a node's edges before it has a parent.
  for (int32_t k = count - 1; k >= 0; --k) {
    auto& node = *nodes[static_cast<size_t>(k)];
    if (plan.has_backward) {
      const auto& deliveries =
          plan.trace->graph.segments[static_cast<size_t>(k)].deliveries;
      for (size_t d = 0; d < deliveries.size(); ++d) {
        Edge edge;
        if (deliveries[d].target == Delivery::Target::kOutput) {
          edge = edge_to_output(deliveries[d].index);
        } else {
          const auto it = std::find(
              plan.autograd.inputs.begin(),
              plan.autograd.inputs.end(),
              deliveries[d].index);
          edge = state->input_edges[static_cast<size_t>(
              it - plan.autograd.inputs.begin())];
        }
        node.targets.push_back({Kind::kDelivery, static_cast<int32_t>(d)});
        node.add_next_edge(edge);
      }
    }
    // Where gradients of an unknown backward may go, besides.
    if (!node.entering.empty()) {
      const auto step =
          plan.autograd.outputs[static_cast<size_t>(node.entering[0])].step;
      for (const auto& later : plan.autograd.outputs) {
        const bool known = plan.has_backward &&
            delivers(plan, k, Delivery::Target::kOutput, later.output);
        if (later.step > step && !known) {
          node.targets.push_back({Kind::kExtraOutput, later.output});
          node.add_next_edge(edge_to_output(later.output));
        }
      }
    }
    if (k + 1 == count) {
      for (size_t i = 0; i < plan.autograd.inputs.size(); ++i) {
        const bool delivered = plan.has_backward &&
            plan.autograd.num_steps == 1 && plan.pattern.needed[i] &&
            delivers(plan, plan.autograd.inputs[i]);
        if (!delivered) {
          node.targets.push_back({Kind::kExtra, static_cast<int32_t>(i)});
          node.add_next_edge(state->input_edges[i]);
        }
      }
    } else {
      node.targets.push_back({Kind::kChain, 0});
      node.add_next_edge(Edge(
          nodes[static_cast<size_t>(k) + 1],
          static_cast<uint32_t>(
              nodes[static_cast<size_t>(k) + 1]->entering.size())));
    }
  }
  // Histories of the outputs.
  for (size_t o = 0; o < plan.autograd.outputs.size(); ++o) {
    const auto output = plan.autograd.outputs[o].output;
    autograd::impl::set_gradient_edge(
        outputs[static_cast<size_t>(output)], edge_to_output(output));
  }
  // What the backward reads. External tensors go through SavedVariable, whose
  // version check raises eager's error; a detached alias spares the cycle
  // output -> node -> output and shares the version counter.
  if (plan.has_backward) {
    const auto& artifact = *plan.artifact;
    state->saved.resize(artifact.saved.size());
    state->external.resize(artifact.saved.size());
    state->last_segment.assign(artifact.saved.size(), -1);
    for (int32_t k = 0; k < count; ++k) {
      for (const auto saved : artifact.segments[static_cast<size_t>(k)].saved) {
        state->last_segment[static_cast<size_t>(saved)] = k;
      }
    }
    for (size_t s = 0; s < artifact.saved.size(); ++s) {
      const auto& saved = artifact.saved[s];
      const auto index = static_cast<size_t>(saved.index);
      switch (saved.kind) {
        case runtime::Saved::Kind::kInput: {
          state->external[s] = autograd::SavedVariable(
              input_tensor(plan, saved.index, arguments), /*is_output=*/false);
          break;
        }
        case runtime::Saved::Kind::kOutput:
          state->external[s] = autograd::SavedVariable(
              outputs[index].detach(), /*is_output=*/false);
          break;
        case runtime::Saved::Kind::kPrivate: {
          auto& value =
              private_values[index - static_cast<size_t>(artifact.num_outputs)];
          if (saved.shares_output >= 0) {
            value.unsafeGetTensorImpl()->set_version_counter(
                outputs[static_cast<size_t>(saved.shares_output)]
                    .unsafeGetTensorImpl()
                    ->version_counter());
            state->external[s] =
                autograd::SavedVariable(value, /*is_output=*/false);
          } else {
            state->saved[s] = std::move(value);
          }
          break;
        }
      }
    }
  }
  if (plan.trace->rng) {
    state->generator = state->fallback.generator;
  }
  state->thread_state = at::ThreadLocalState();
}

} // namespace temper::dispatch
