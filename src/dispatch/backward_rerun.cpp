// Running the code again for a backward.
//
// 1. The watched state and the inputs must be what they were. Arguments are
//    aliases that end where the real ones' gradients go; generators begin where
//    they began; what the code writes is put back.
// 2. Outputs that were changed since the call are marked as changed in the new
//    graph, too: where eager would raise its version error, autograd raises it.
// 3. While a step's gradients are taken, every edge of the new graph that leads
//    to an input, or from inside to an output, is led to a node that collects
//    what comes. So hooks are called, and sums made, where the real gradients
//    pass.
#include "dispatch/backward_rerun.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include "base/error.h"

namespace temper::dispatch {

namespace autograd = torch::autograd;

// Where an edge of the new graph ends.
class BackwardRerun::Collector : public autograd::Node {
 public:
  /// Of edges that come from one node those with higher numbers arrive first.
  Collector(
      uint64_t number,
      std::shared_ptr<Gradients> all,
      std::vector<at::Tensor>* into)
      : Node(number), all_(std::move(all)), into_(into) {}
  std::string name() const override {
    return "TemperCollector";
  }
  autograd::variable_list apply(autograd::variable_list&& gradients) override {
    if (gradients[0].defined()) {
      into_->push_back(std::move(gradients[0]));
    }
    return {};
  }

 private:
  std::shared_ptr<Gradients> all_;
  std::vector<at::Tensor>* into_; ///< In `all_`.
};

BackwardRerun::BackwardRerun(
    std::shared_ptr<const Plan> plan,
    std::vector<at::Tensor> arguments,
    const std::vector<at::Tensor>& outputs,
    BackwardFallback fallback)
    : plan_(std::move(plan)),
      arguments_(std::move(arguments)),
      fallback_(std::move(fallback)) {
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

void BackwardRerun::end_backward() {
  outputs_.clear();
  inputs_.clear();
  changes_.clear();
}

void BackwardRerun::report() const {
  fallback_.report(
      at::GradMode::is_enabled()
          ? "double backward (create_graph) through the call"
          : std::string());
}

void BackwardRerun::count_program_backward() const {
  fallback_.count();
}

void BackwardRerun::release() {
  end_backward();
  arguments_.clear();
  fallback_ = {};
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
        "' of a compiled call has been modified by an inplace operation before "
        "a backward of a kind that the compiled call has not seen yet (is at "
        "version ",
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
      "a backward came that the compiled call does not know, and its code can't "
      "be run again; call backward the same way every time, or decompile()");
  fallback_.check_state();
  check_inputs();
  auto arguments = arguments_;
  for (auto& argument : arguments) {
    if (argument.defined() && argument.requires_grad()) {
      argument = differentiable ? at::alias(argument)
                                : argument.detach().set_requires_grad(true);
    }
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> written;
  for (const auto input : plan.mutated) {
    auto tensor = input_tensor(plan, input, arguments_);
    written.emplace_back(tensor, tensor.detach().clone());
  }
  const auto now = capture::GeneratorState::current();
  if (generator_) {
    generator_->restore();
  }
  Result result;
  {
    const at::ThreadLocalStateGuard as_called(thread_state_);
    result = fallback_.rerun(arguments);
  }
  if (generator_) {
    now.restore();
  }
  for (auto& [tensor, content] : written) {
    const at::AutoDispatchBelowADInplaceOrView below;
    tensor.copy_(content);
  }
  for (const auto& output : plan.autograd.outputs) {
    for (size_t r = 0; r < plan.results.size(); ++r) {
      const auto& planned = plan.results[r];
      if (planned.kind == capture::ResultPlan::Kind::kOutput &&
          planned.index == output.output && !planned.leaf) {
        outputs_.push_back(
            planned.chain.empty() ? result.tensors[r]
                                  : at::Tensor(result.tensors[r]._base()));
        break;
      }
    }
  }
  changes_.assign(outputs_.size(), 0);
  for (const auto input : plan.autograd.inputs) {
    inputs_.push_back(input_tensor(plan, input, arguments));
  }
}

// Leads the edges that leave the region to collectors, until it goes.
class BackwardRerun::Diversion {
 public:
  Diversion(
      const std::vector<at::Tensor>& inputs,
      const std::vector<at::Tensor>& outputs,
      const std::shared_ptr<Gradients>& into);
  // A second derivative finds its way through the edges as they were.
  ~Diversion() {
    for (auto& [edge, original] : diverted_) {
      *edge = std::move(original);
    }
  }
  Diversion(const Diversion&) = delete;
  Diversion& operator=(const Diversion&) = delete;

 private:
  std::vector<std::pair<autograd::Edge*, autograd::Edge>> diverted_;
};

BackwardRerun::Diversion::Diversion(
    const std::vector<at::Tensor>& inputs,
    const std::vector<at::Tensor>& outputs,
    const std::shared_ptr<Gradients>& into) {
  into->inputs.resize(inputs.size());
  into->outputs.resize(outputs.size());
  struct Place {
    const at::Tensor* tensor = nullptr;
    std::vector<at::Tensor>* into = nullptr;
  };
  std::map<std::pair<autograd::Node*, uint32_t>, Place> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto edge = autograd::impl::gradient_edge(inputs[i]);
    places[{edge.function.get(), edge.input_nr}] = {
        &inputs[i], &into->inputs[i]};
  }
  std::vector<autograd::Node*> stack;
  for (size_t o = 0; o < outputs.size(); ++o) {
    const auto edge = autograd::impl::gradient_edge(outputs[o]);
    stack.push_back(edge.function.get());
    places[{edge.function.get(), edge.input_nr}] = {
        &outputs[o], &into->outputs[o]};
  }
  std::unordered_set<autograd::Node*> seen;
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (!seen.insert(node).second) {
      continue;
    }
    auto& edges = node->next_edges();
    for (size_t e = 0; e < edges.size(); ++e) {
      if (!edges[e].is_valid()) {
        continue;
      }
      const auto place =
          places.find({edges[e].function.get(), edges[e].input_nr});
      if (place == places.end()) {
        stack.push_back(edges[e].function.get());
        continue;
      }
      // As AccumulateGrad: before any other node that is ready.
      auto collector = c10::make_intrusive<Collector>(
          std::numeric_limits<uint64_t>::max() - e, into, place->second.into);
      collector->add_input_metadata(*place->second.tensor);
      diverted_.emplace_back(
          &edges[e],
          std::exchange(edges[e], autograd::Edge(std::move(collector), 0)));
    }
  }
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

BackwardRerun::Gradients BackwardRerun::gradients(
    const std::vector<int32_t>& entering,
    const std::vector<at::Tensor>& tangents) {
  const bool differentiable = at::GradMode::is_enabled();
  if (outputs_.empty()) {
    run(differentiable);
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
  const auto result = std::make_shared<Gradients>();
  const Diversion diversion(inputs_, outputs_, result);
  autograd::Engine::get_default_engine().execute(
      roots,
      root_gradients,
      /*keep_graph=*/true,
      differentiable,
      /*accumulate_grad=*/false);
  return std::move(*result);
}

} // namespace temper::dispatch
