// Running the code again for a backward.
//
// 1. The watched state and the inputs must be what they were. Arguments are
//    aliases that end where the real ones' gradients go; generators begin where
//    they began; what the code writes is put back.
// 2. Outputs that were changed since the call are marked as changed in the new
//    graph, too: where eager would raise its version error, autograd raises it.
// 3. While a step's gradients are taken, every edge of the new graph that leads
//    to an input, or from inside to an output, ends in a node of its own, from
//    which the engine hands out what comes. So hooks are called, and sums made,
//    where the real gradients pass.
#include "dispatch/backward_rerun.h"

#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace temper::dispatch {

namespace autograd = torch::autograd;

namespace {

thread_local bool rerunning_here = false;

// Where an edge that leaves the new graph ends: the engine hands out what comes
// there.
class End : public autograd::Node {
 public:
  explicit End(const at::Tensor& like)
      : Node(std::numeric_limits<uint64_t>::max()) {
    add_input_metadata(like);
  }
  std::string name() const override {
    return "TemperEnd";
  }
  autograd::variable_list apply(autograd::variable_list&&) override {
    return {};
  }
};

// Leads the edges that leave the region to ends of their own, until it goes.
class Diversion {
 public:
  Diversion(
      const std::vector<at::Tensor>& inputs,
      const std::vector<at::Tensor>& outputs);
  // A second derivative finds its way through the edges as they were.
  ~Diversion() {
    for (auto& place : places_) {
      *place.edge = std::move(place.original);
    }
  }
  Diversion(const Diversion&) = delete;
  Diversion& operator=(const Diversion&) = delete;

  /// The ends, in the order in which the engine reaches them.
  autograd::edge_list ends() const {
    autograd::edge_list result;
    for (const auto& place : places_) {
      result.push_back(*place.edge);
    }
    return result;
  }
  /// Of the i-th end: an index into the inputs, or past them the outputs.
  size_t target(size_t i) const {
    return places_[i].target;
  }

 private:
  struct Place {
    autograd::Edge* edge;
    autograd::Edge original;
    size_t target;
    uint64_t sequence_number; ///< Of the node: the engine takes the last first.
  };
  std::vector<Place> places_;
};

Diversion::Diversion(
    const std::vector<at::Tensor>& inputs,
    const std::vector<at::Tensor>& outputs) {
  std::map<std::pair<autograd::Node*, uint32_t>, size_t> targets;
  std::vector<autograd::Node*> stack;
  for (size_t i = 0; i < inputs.size() + outputs.size(); ++i) {
    const bool is_input = i < inputs.size();
    const auto edge = autograd::impl::gradient_edge(
        is_input ? inputs[i] : outputs[i - inputs.size()]);
    targets[{edge.function.get(), edge.input_nr}] = i;
    if (!is_input) {
      stack.push_back(edge.function.get());
    }
  }
  std::unordered_set<autograd::Node*> seen;
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) {
      continue;
    }
    for (auto& edge : node->next_edges()) {
      if (!edge.is_valid()) {
        continue;
      }
      const auto target = targets.find({edge.function.get(), edge.input_nr});
      if (target == targets.end()) {
        stack.push_back(edge.function.get());
        continue;
      }
      const auto i = target->second;
      autograd::Edge end(
          c10::make_intrusive<End>(
              i < inputs.size() ? inputs[i] : outputs[i - inputs.size()]),
          0);
      places_.push_back(
          {&edge, std::exchange(edge, std::move(end)), i, node->sequence_nr()});
    }
  }
  std::stable_sort(
      places_.begin(), places_.end(), [](const Place& a, const Place& b) {
        return a.sequence_number > b.sequence_number;
      });
}

[[noreturn]] void throw_rewritten(const Plan& plan) {
  for (size_t i = 0; i < plan.trace->bindings.size(); ++i) {
    if (plan.trace->bindings[i].argument == plan.rewritten[0]) {
      base::throw_error(c10::str(
          "a backward came that '",
          plan.name,
          "' does not know, and its code can't be run again since it gives '",
          plan.trace->graph.inputs[i].name,
          "' another history; call backward the same way every time, or "
          "decompile()"));
    }
  }
  TEMPER_INTERNAL(false, "no input is argument ", plan.rewritten[0]);
}

} // namespace

bool rerunning() {
  return rerunning_here;
}

BackwardRerun::BackwardRerun(
    std::shared_ptr<const Plan> plan,
    const std::vector<at::Tensor>& arguments,
    const std::vector<at::Tensor>& outputs,
    BackwardFallback fallback)
    : plan_(std::move(plan)), fallback_(std::move(fallback)) {
  histories_.resize(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto& argument = arguments[i];
    size_t first = 0;
    while (!arguments[first].is_same(argument)) {
      ++first;
    }
    same_as_.push_back(first);
    if (!argument.defined() ||
        (argument.requires_grad() && argument.is_leaf())) {
      arguments_.push_back(argument);
      continue;
    }
    if (argument.requires_grad()) {
      histories_[i].requires_grad = true;
      const auto& inputs = plan_->autograd.inputs;
      if (std::any_of(inputs.begin(), inputs.end(), [&](int32_t input) {
            const auto from =
                plan_->trace->bindings[static_cast<size_t>(input)].argument;
            return from >= 0 &&
                arguments[static_cast<size_t>(from)].is_same(argument);
          })) {
        const auto edge = autograd::impl::gradient_edge(argument);
        histories_[i].node =
            c10::weak_intrusive_ptr<autograd::Node>(edge.function);
        histories_[i].input = edge.input_nr;
      }
    }
    arguments_.push_back(capture::memory_of(argument));
  }
  for (const auto input : plan_->forward_inputs) {
    const auto tensor = input_tensor(*plan_, input, arguments_);
    versions_.push_back(tensor.is_inference() ? 0 : tensor._version());
  }
  for (const auto& output : plan_->autograd.outputs) {
    const auto& tensor = outputs[static_cast<size_t>(output.output)];
    output_versions_.push_back(tensor.unsafeGetTensorImpl()->version_counter());
    output_starts_.push_back(output_versions_.back().current_version());
  }
  if (plan_->trace->rng) {
    generator_ = fallback_.generator;
  }
}

void BackwardRerun::report(const std::string& reason) const {
  fallback_.report(
      reason.empty() && at::GradMode::is_enabled()
          ? "double backward (create_graph) through the call"
          : reason);
}

void BackwardRerun::count_program_backward() const {
  fallback_.count();
}

void BackwardRerun::release() {
  outputs_.clear();
  inputs_.clear();
  changes_.clear();
  arguments_.clear();
  histories_.clear();
  // Backwards that read nothing may still come, and are counted.
  fallback_.rerun = nullptr;
  fallback_.check_state = nullptr;
  fallback_.generator.reset();
  fallback_.old_contents.clear();
  released_ = true;
}

void BackwardRerun::check_inputs() const {
  const auto& inputs = plan_->trace->graph.inputs;
  for (size_t i = 0; i < plan_->forward_inputs.size(); ++i) {
    const auto input = plan_->forward_inputs[i];
    const auto tensor = input_tensor(*plan_, input, arguments_);
    TEMPER_CHECK(
        tensor.is_inference() || tensor._version() == versions_[i],
        "input '",
        inputs[static_cast<size_t>(input)].name,
        "' of a call of '",
        plan_->name,
        "' has been modified by an inplace operation before a backward of a kind "
        "that has not been seen yet (is at version ",
        tensor._version(),
        ", expected ",
        versions_[i],
        "); run the backward first, or clone the input");
  }
}

void BackwardRerun::run(bool differentiable) {
  const auto& plan = *plan_;
  TORCH_CHECK(!released_, autograd::ERR_BACKWARD_TWICE);
  TEMPER_CHECK(
      fallback_.rerun != nullptr,
      "a backward came that '",
      plan.name,
      "' does not know, and its code can't be run again; call backward the same "
      "way every time, or decompile()");
  if (!plan.rewritten.empty()) {
    throw_rewritten(plan);
  }
  fallback_.check_state();
  check_inputs();
  const auto arguments = aliases(differentiable);
  take_outputs(run_code(arguments));
  if (autograd::AnomalyMode::is_enabled()) {
    forget_parents();
  }
  for (const auto input : plan.autograd.inputs) {
    inputs_.push_back(input_tensor(plan, input, arguments));
  }
}

// In anomaly mode a node knows the one that was running when it was made: that
// of the call, which leads here.
void BackwardRerun::forget_parents() const {
  std::unordered_set<autograd::Node*> seen;
  std::vector<autograd::Node*> stack;
  for (const auto& output : outputs_) {
    stack.push_back(output.grad_fn().get());
  }
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (node == nullptr || node->sequence_nr() < first_sequence_number_ ||
        !seen.insert(node).second) {
      continue;
    }
    node->metadata()->assign_parent({});
    for (const auto& edge : node->next_edges()) {
      stack.push_back(edge.function.get());
    }
  }
}

// The arguments of the new run, whose gradients go where the real ones' do.
std::vector<at::Tensor> BackwardRerun::aliases(bool differentiable) const {
  auto arguments = arguments_;
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto& argument = arguments[i];
    if (same_as_[i] != i) {
      argument = arguments[same_as_[i]];
      continue;
    }
    const bool is_leaf = argument.defined() && argument.requires_grad();
    const auto& history = histories_[i];
    if (!is_leaf && !history.requires_grad) {
      continue;
    }
    argument = argument.detach();
    const auto node = history.node.lock();
    if (!differentiable || (!is_leaf && !node)) {
      argument.set_requires_grad(true);
      continue;
    }
    autograd::impl::set_gradient_edge(
        argument,
        is_leaf ? autograd::impl::gradient_edge(arguments_[i])
                : autograd::Edge(node, history.input));
    argument = at::alias(argument);
  }
  return arguments;
}

Result BackwardRerun::run_code(const std::vector<at::Tensor>& arguments) {
  const auto& plan = *plan_;
  const auto written = contents_of_mutated(plan, arguments_);
  // The run counts versions up again, from where the call found them: what it
  // saves on its way has the version that the call left.
  const auto set_versions = [&](bool before_the_call) {
    for (size_t i = 0; i < plan.forward_inputs.size(); ++i) {
      const auto input = plan.forward_inputs[i];
      const auto steps =
          plan.trace->bindings[static_cast<size_t>(input)].version_steps;
      const auto tensor = input_tensor(plan, input, arguments_);
      if (steps > 0 && !tensor.is_inference()) {
        auto counter = tensor.unsafeGetTensorImpl()->version_counter();
        counter.set_version(versions_[i] - (before_the_call ? steps : 0));
      }
    }
  };
  const auto now = capture::GeneratorState::current();
  // Autocast's cache belongs to a region of the user's: casts in another
  // dtype must not be found there, nor left.
  const bool caches = at::autocast::is_autocast_cache_enabled();
  at::autocast::set_autocast_cache_enabled(false);
  const auto put_back = c10::make_scope_exit([&] {
    at::autocast::set_autocast_cache_enabled(caches);
    if (generator_) {
      now.restore();
    }
    written.put_back();
    set_versions(/*before_the_call=*/false);
  });
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    for (size_t i = 0; i < plan.changed_for_a_rerun.size(); ++i) {
      input_tensor(plan, plan.changed_for_a_rerun[i], arguments_)
          .copy_(fallback_.old_contents[i]);
    }
  }
  set_versions(/*before_the_call=*/true);
  if (generator_) {
    generator_->restore();
  }
  const at::ThreadLocalStateGuard as_called(thread_state_);
  // What is compiled inside gets no nodes of its own: gradients are to leave
  // the new graph where those of this call do.
  const bool outer = std::exchange(rerunning_here, true);
  const auto leave = c10::make_scope_exit([&] { rerunning_here = outer; });
  return fallback_.rerun(arguments);
}

// The results that are outputs with a gradient. What the code reads besides
// watched state may have changed.
void BackwardRerun::take_outputs(const Result& result) {
  const auto& plan = *plan_;
  const auto check = [&](bool same) {
    TEMPER_CHECK(
        same,
        "a backward came that '",
        plan.name,
        "' does not know, and its code gave other results when it was run "
        "again; name what it depends on to compile(), or decompile()");
  };
  check(
      result.structure == plan.result_structure &&
      result.tensors.size() == plan.results.size());
  std::vector<at::Tensor> outputs;
  for (const auto& output : plan.autograd.outputs) {
    for (size_t r = 0; r < plan.results.size(); ++r) {
      const auto& planned = plan.results[r];
      if (planned.kind != capture::ResultPlan::Kind::kOutput ||
          planned.index != output.output || planned.leaf) {
        continue;
      }
      auto tensor = result.tensors[r];
      check(tensor.defined() && (planned.chain.empty() || tensor.is_view()));
      if (!planned.chain.empty()) {
        tensor = tensor._base();
      }
      check(tensor.grad_fn() != nullptr);
      outputs.push_back(std::move(tensor));
      break;
    }
  }
  TEMPER_INTERNAL(outputs.size() == plan.autograd.outputs.size());
  outputs_ = std::move(outputs);
  changes_.assign(outputs_.size(), 0);
}

void BackwardRerun::note_changed_outputs() {
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const auto changes =
        output_versions_[o].current_version() - output_starts_[o];
    for (; changes_[o] < changes; ++changes_[o]) {
      outputs_[o].unsafeGetTensorImpl()->bump_version();
    }
  }
}

// A second derivative passes the user's results, whose hooks see it, not those
// of the run.
void BackwardRerun::lead_to(
    const std::vector<c10::intrusive_ptr<autograd::Node>>& results,
    const autograd::variable_list& gradients) const {
  std::map<std::pair<autograd::Node*, uint32_t>, size_t> targets;
  for (size_t o = 0; o < outputs_.size(); ++o) {
    const auto edge = autograd::impl::gradient_edge(outputs_[o]);
    targets[{edge.function.get(), edge.input_nr}] = o;
  }
  std::unordered_set<autograd::Node*> seen;
  std::vector<autograd::Node*> stack;
  for (const auto& gradient : gradients) {
    if (gradient.defined()) {
      stack.push_back(gradient.grad_fn().get());
    }
  }
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (node == nullptr || node->sequence_nr() < first_sequence_number_ ||
        !seen.insert(node).second) {
      continue;
    }
    for (auto& edge : node->next_edges()) {
      const auto target = targets.find({edge.function.get(), edge.input_nr});
      if (target == targets.end() || results[target->second] == nullptr) {
        stack.push_back(edge.function.get());
      } else {
        edge = autograd::Edge(results[target->second], 0);
      }
    }
  }
}

BackwardRerun::Gradients BackwardRerun::gradients(
    const std::vector<int32_t>& entering,
    const std::vector<at::Tensor>& tangents,
    const std::vector<c10::intrusive_ptr<autograd::Node>>& results) {
  const bool differentiable = at::GradMode::is_enabled();
  if (outputs_.empty() || differentiable != differentiable_) {
    outputs_.clear();
    inputs_.clear();
    first_sequence_number_ = at::sequence_number::peek();
    run(differentiable);
    differentiable_ = differentiable;
  }
  note_changed_outputs();
  autograd::edge_list roots;
  autograd::variable_list root_gradients;
  for (size_t i = 0; i < entering.size(); ++i) {
    if (tangents[i].defined()) {
      roots.push_back(autograd::impl::gradient_edge(
          outputs_[static_cast<size_t>(entering[i])]));
      root_gradients.push_back(tangents[i]);
    }
  }
  Gradients result;
  result.inputs.resize(inputs_.size());
  result.outputs.resize(outputs_.size());
  autograd::variable_list gradients;
  {
    const Diversion diversion(inputs_, outputs_);
    const auto ends = diversion.ends();
    if (ends.empty()) {
      return result;
    }
    gradients = autograd::Engine::get_default_engine().execute(
        roots,
        root_gradients,
        // Where steps overlap a node runs once for each.
        /*keep_graph=*/plan_->autograd.num_steps > 1 ||
            autograd::get_current_graph_task_keep_graph(),
        differentiable,
        /*accumulate_grad=*/false,
        ends);
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        const auto target = diversion.target(i);
        (target < inputs_.size() ? result.inputs[target]
                                 : result.outputs[target - inputs_.size()])
            .push_back(gradients[i]);
      }
    }
  }
  if (differentiable) {
    lead_to(results, gradients);
    // The new graph leads here now: held from here it would never go.
    outputs_.clear();
    inputs_.clear();
  }
  return result;
}

} // namespace temper::dispatch
