// Recording the user's own backward.
//
// 1. Nodes made during the call (reached from the outputs, not past an input's
//    edge) get a pre and a post hook.
// 2. Pre: a gradient that enters the region is a tangent; any other one must be
//    what the region's nodes sent here. Several are summed as the engine did,
//    in order of arrival. Then ops are recorded until the post hook.
// 3. Post: each gradient goes to another node of the region, to an input, or to
//    an output (its inner part). The two latter are handed to the engine one by
//    one, in order: it adds them to what comes from outside, as in eager.
// 4. When the engine's graph task ends, they are cut into segments. The next
//    backward through the call is recorded as an alternative.
#include "capture/backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <limits>

#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::ValueId;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Gradients are handed over when this much has come together, so that they
// reach `.grad` (and later all-reduces) while the backward goes on, and are not
// all alive beside an old `.grad` at its end.
constexpr size_t kBucketBytes = 1 << 20;

struct PreHook : torch::autograd::FunctionPreHook {
  PreHook(std::shared_ptr<BackwardRecord> the_record, Node* the_node)
      : record(std::move(the_record)), node(the_node) {}
  variable_list operator()(const variable_list& gradients) override {
    auto result = gradients;
    record->before(node, result);
    return result;
  }
  std::shared_ptr<BackwardRecord> record;
  Node* node;
};

struct PostHook : torch::autograd::FunctionPostHook {
  PostHook(std::shared_ptr<BackwardRecord> the_record, Node* the_node)
      : record(std::move(the_record)), node(the_node) {}
  variable_list operator()(
      const variable_list& outputs,
      const variable_list& /*inputs*/) override {
    record->after(node, outputs);
    return outputs;
  }
  std::shared_ptr<BackwardRecord> record;
  Node* node;
};

bool has_hooks(Node& node) {
  return !node.pre_hooks().empty() || !node.tensor_pre_hooks().empty() ||
      !node.post_hooks().empty() || !node.retains_grad_hooks().empty();
}

// The same content and strides in new memory.
at::Tensor own_memory(const at::Tensor& tensor) {
  static const auto copy =
      ops::copy_memory().typed<at::Tensor(const at::Tensor&, bool)>();
  const at::NoGradGuard no_grad;
  return copy.call(tensor, false);
}

bool is_accumulate(Node* node) {
  return dynamic_cast<torch::autograd::AccumulateGrad*>(node) != nullptr;
}

// LibTorch's own nodes are in its namespace; those of custom functions, too.
bool is_user_code(const Node& node) {
  const std::string_view type = typeid(node).name();
  return !type.starts_with("N5torch8autograd") ||
      type.find("CppNode") != std::string_view::npos;
}

size_t bytes_of(const graph::Type& type) {
  size_t bytes = c10::elementSize(type.dtype);
  for (const auto& dim : type.sizes) {
    bytes *= static_cast<size_t>(std::max<int64_t>(dim.size, 0));
  }
  return bytes;
}

// The edge of a graph input's tensor, as it was when the call began.
Edge edge_of_input(
    const Binding& binding,
    const std::vector<at::Tensor>& arguments,
    const std::vector<Edge>& argument_edges) {
  if (binding.argument >= 0) {
    return arguments[static_cast<size_t>(binding.argument)].requires_grad()
        ? argument_edges[static_cast<size_t>(binding.argument)]
        : Edge();
  }
  const at::Tensor tensor = binding.tensor(arguments);
  return tensor.requires_grad() ? torch::autograd::impl::gradient_edge(tensor)
                                : Edge();
}

} // namespace

BackwardRecord::~BackwardRecord() = default;

std::shared_ptr<BackwardRecord> BackwardRecord::begin(
    std::unique_ptr<Recorder>& recorder,
    std::vector<ResultPlan>& plans,
    const std::vector<at::Tensor>& results,
    const std::vector<at::Tensor>& arguments,
    const std::vector<Edge>& argument_edges,
    uint64_t first_sequence_number,
    AutogradTrace& autograd,
    Done done) {
  std::shared_ptr<BackwardRecord> record(new BackwardRecord());
  auto& trace = recorder->trace();
  // The ports where gradients enter: those of the graph outputs.
  std::vector<Node*> roots;
  for (size_t i = 0; i < plans.size(); ++i) {
    const auto& plan = plans[i];
    if (plan.kind != ResultPlan::Kind::kOutput || !plan.requires_grad ||
        plan.leaf) {
      continue;
    }
    const at::Tensor base =
        plan.chain.empty() ? results[i] : at::Tensor(results[i]._base());
    const Port port{base.grad_fn().get(), base.output_nr()};
    if (port.first == nullptr) {
      recorder->fail("a result without history requires grad");
      return nullptr;
    }
    const auto [it, added] = record->output_ports_.try_emplace(
        port, static_cast<int32_t>(autograd.outputs.size()));
    if (added) {
      autograd.outputs.push_back({plan.index, 0});
      roots.push_back(port.first);
    } else if (
        autograd.outputs[static_cast<size_t>(it->second)].output !=
        plan.index) {
      recorder->fail("two results share one gradient");
      return nullptr;
    }
  }
  if (autograd.outputs.empty()) {
    return nullptr;
  }
  std::unordered_map<Port, int32_t, PortHash> known; // Port -> graph input.
  const auto learn_inputs = [&](size_t from) {
    for (size_t i = from; i < trace.bindings.size(); ++i) {
      if (trace.graph.inputs[i].role == graph::Role::kTangent) {
        continue;
      }
      const auto edge =
          edge_of_input(trace.bindings[i], arguments, argument_edges);
      if (edge.is_valid()) {
        known.emplace(
            Port{edge.function.get(), edge.input_nr}, static_cast<int32_t>(i));
      }
    }
  };
  learn_inputs(0);
  for (size_t a = 0; a < arguments.size(); ++a) {
    // Arguments whose gradient flows although no op read them (an identity
    // Function) become inputs when their edge is met.
    if (arguments[a].defined() && argument_edges[a].is_valid()) {
      known.emplace(
          Port{argument_edges[a].function.get(), argument_edges[a].input_nr},
          -2 - static_cast<int32_t>(a));
    }
  }
  // Walk. Output ports reached from inside have an inner gradient part.
  std::vector<Node*> stack = roots;
  std::vector<Node*> inner_outputs;
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (!record->nodes_.try_emplace(node, record->nodes_.size()).second) {
      continue;
    }
    if (has_hooks(*node)) {
      recorder->fail("a hook on an intermediate tensor (" + node->name() + ")");
      return nullptr;
    }
    for (const auto& edge : node->next_edges()) {
      if (!edge.is_valid()) {
        continue;
      }
      const Port port{edge.function.get(), edge.input_nr};
      if (const auto output = record->output_ports_.find(port);
          output != record->output_ports_.end()) {
        inner_outputs.push_back(port.first);
      }
      auto input = known.find(port);
      if (input == known.end() && is_accumulate(port.first)) {
        const auto& variable =
            static_cast<torch::autograd::AccumulateGrad*>(port.first)->variable;
        const auto added = recorder->input_of_watched(variable);
        if (added >= 0) {
          input = known.emplace(port, added).first;
        }
      }
      if (input != known.end()) {
        if (input->second <= -2) {
          input->second = recorder->input_of_argument(-2 - input->second);
        }
        if (record->input_ports_
                .try_emplace(port, static_cast<int32_t>(autograd.inputs.size()))
                .second) {
          autograd.inputs.push_back(input->second);
        }
        continue;
      }
      if (is_accumulate(port.first)) {
        // A leaf made in the call (`x.detach().requires_grad_()`): its gradient
        // is seen by nobody, unless it is a result.
        const auto& variable =
            static_cast<torch::autograd::AccumulateGrad*>(port.first)->variable;
        const bool is_result = std::any_of(
            results.begin(), results.end(), [&](const at::Tensor& result) {
              return result.is_same(variable);
            });
        if (!is_result &&
            recorder->ledger().find_object(variable) != kNoValue) {
          continue;
        }
        recorder->fail(
            "gradients flow to a tensor that is no input, argument or watched "
            "parameter");
        return nullptr;
      }
      if (port.first->sequence_nr() < first_sequence_number) {
        recorder->fail("gradients flow to a tensor made before the call");
        return nullptr;
      }
      stack.push_back(port.first);
    }
  }
  // Outputs from which others are computed get steps of their own, in the
  // order in which the engine reaches them (latest node first).
  std::sort(inner_outputs.begin(), inner_outputs.end(), [](Node* a, Node* b) {
    return a->sequence_nr() > b->sequence_nr();
  });
  inner_outputs.erase(
      std::unique(inner_outputs.begin(), inner_outputs.end()),
      inner_outputs.end());
  for (const auto& [port, index] : record->output_ports_) {
    const auto it =
        std::find(inner_outputs.begin(), inner_outputs.end(), port.first);
    if (it != inner_outputs.end()) {
      autograd.outputs[static_cast<size_t>(index)].step =
          static_cast<int32_t>(it - inner_outputs.begin()) + 1;
    }
  }
  autograd.num_steps = static_cast<int32_t>(inner_outputs.size()) + 1;
  for (const auto& [port, index] : record->output_ports_) {
    for (const auto& [other, place] : record->output_ports_) {
      autograd.outputs[static_cast<size_t>(index)].made +=
          other.first->sequence_nr() < port.first->sequence_nr() ? 1 : 0;
    }
  }
  record->autograd_ = autograd;
  record->find_reach();
  record->count_edges();
  autograd = record->autograd_;
  record->find_late_views(plans, results);
  end_forward(trace);
  record->recorder_ = std::move(recorder);
  record->done_ = std::move(done);
  for (const auto& [node, place] : record->nodes_) {
    node->add_pre_hook(std::make_unique<PreHook>(record, node));
    node->add_post_hook(std::make_unique<PostHook>(record, node));
  }
  return record;
}

// Views are taken again when the program has run. The engine takes the node
// that was made last first: it must find them on the side of the region's nodes
// on which they were.
void BackwardRecord::find_late_views(
    std::vector<ResultPlan>& plans,
    const std::vector<at::Tensor>& results) const {
  for (size_t i = 0; i < plans.size(); ++i) {
    if (plans[i].chain.empty() || !results[i].requires_grad() ||
        results[i].grad_fn() == nullptr) {
      continue;
    }
    auto edge = torch::autograd::impl::gradient_edge(results[i]);
    const auto made = edge.function->sequence_nr();
    for (size_t step = 0;
         step < plans[i].chain.size() && edge.function->num_outputs() > 0;
         ++step) {
      edge = edge.function->next_edge(0);
      if (!edge.is_valid()) {
        break;
      }
    }
    const auto& to = edge;
    for (const auto& [node, place] : nodes_) {
      const auto& edges = node->next_edges();
      if (std::find(edges.begin(), edges.end(), to) != edges.end() &&
          node->sequence_nr() > made) {
        plans[i].late = true;
      }
    }
  }
}

// Where a gradient goes from each output.
void BackwardRecord::find_reach() {
  autograd_.reach.resize(autograd_.outputs.size());
  for (const auto& [start, output] : output_ports_) {
    auto& reach = autograd_.reach[static_cast<size_t>(output)];
    reach.inputs.resize(autograd_.inputs.size());
    reach.outputs.resize(autograd_.outputs.size());
    reach.nodes.resize(nodes_.size());
    std::vector<Node*> stack{start.first};
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      const auto place = nodes_.find(node);
      if (place == nodes_.end() || reach.nodes[place->second]) {
        continue;
      }
      reach.nodes[place->second] = true;
      for (const auto& edge : node->next_edges()) {
        const Port port{edge.function.get(), edge.input_nr};
        if (const auto input = input_ports_.find(port);
            input != input_ports_.end()) {
          reach.inputs[static_cast<size_t>(input->second)] = true;
          continue;
        }
        if (const auto inner = output_ports_.find(port);
            inner != output_ports_.end()) {
          reach.outputs[static_cast<size_t>(inner->second)] = true;
        }
        stack.push_back(port.first);
      }
    }
  }
}

void BackwardRecord::count_edges() {
  autograd_.edges.resize(static_cast<size_t>(autograd_.num_steps));
  for (int32_t step = 0; step < autograd_.num_steps; ++step) {
    auto& edges = autograd_.edges[static_cast<size_t>(step)];
    edges.inputs.resize(autograd_.inputs.size());
    edges.outputs.resize(autograd_.outputs.size());
    std::vector<Node*> stack;
    for (const auto& [port, output] : output_ports_) {
      if (autograd_.outputs[static_cast<size_t>(output)].step == step) {
        stack.push_back(port.first);
      }
    }
    std::vector<bool> seen(nodes_.size());
    while (!stack.empty()) {
      Node* node = stack.back();
      stack.pop_back();
      const auto place = nodes_.find(node);
      if (place == nodes_.end() || seen[place->second]) {
        continue;
      }
      seen[place->second] = true;
      for (const auto& edge : node->next_edges()) {
        const Port port{edge.function.get(), edge.input_nr};
        if (const auto input = input_ports_.find(port);
            input != input_ports_.end()) {
          ++edges.inputs[static_cast<size_t>(input->second)];
        } else if (const auto inner = output_ports_.find(port);
                   inner != output_ports_.end()) {
          ++edges.outputs[static_cast<size_t>(inner->second)];
        } else {
          stack.push_back(port.first);
        }
      }
    }
  }
}

// The first node of a backward.
bool BackwardRecord::start() {
  state_ = State::kRecording;
  task_ = torch::autograd::get_current_graph_task_id();
  last_ = {};
  last_.pattern.first_step = -1;
  last_.pattern.tangents.resize(autograd_.outputs.size());
  last_.pattern.needed.resize(autograd_.inputs.size());
  last_.readers.resize(nodes_.size());
  last_.visited.resize(nodes_.size());
  last_.pattern.autocast = autocast_state();
  first_op_ = static_cast<int32_t>(recorder_->trace().graph.ops.size());
  pending_.clear();
  sent_.clear();
  step_ends_.clear();
  step_tangents_.assign(static_cast<size_t>(autograd_.num_steps), {});
  const auto* info = torch::autograd::get_current_graph_task_exec_info();
  for (const auto& [port, index] : input_ports_) {
    bool needed = true;
    if (info != nullptr && !info->empty()) {
      const auto it = info->find(port.first);
      needed = it != info->end() && it->second.should_execute();
    }
    last_.pattern.needed[static_cast<size_t>(index)] = needed;
  }
  if (at::GradMode::is_enabled()) {
    recorder_->fail("double backward (create_graph) through the call");
  }
  std::weak_ptr<BackwardRecord> weak = weak_from_this();
  torch::autograd::Engine::get_default_engine().queue_callback([weak] {
    if (auto self = weak.lock()) {
      self->finish();
    }
  });
  return !recorder_->failed();
}

void BackwardRecord::abandon() {
  const std::scoped_lock lock(mutex_);
  state_ = State::kDone;
  done_ = nullptr;
}

void BackwardRecord::close_step(int32_t step) {
  const auto here = static_cast<int32_t>(recorder_->trace().graph.ops.size());
  while (static_cast<int32_t>(step_ends_.size()) < step) {
    step_ends_.push_back(here);
  }
}

// Finds out what the gradients of a node are. False if it can't be recorded.
bool BackwardRecord::takes_in(Node* node, variable_list& gradients) {
  for (uint32_t slot = 0; slot < gradients.size(); ++slot) {
    auto& gradient = gradients[slot];
    if (!gradient.defined()) {
      continue;
    }
    const auto output = output_ports_.find({node, slot});
    if (output != output_ports_.end()) {
      const auto index = static_cast<size_t>(output->second);
      const auto step = autograd_.outputs[index].step;
      if (step < static_cast<int32_t>(step_ends_.size())) {
        recorder_->fail("the backward reached the results in another order");
        return false;
      }
      close_step(step);
      auto& pattern = last_.pattern;
      if (pattern.first_step < 0) {
        pattern.first_step = step;
      }
      pattern.tangents[index] = true;
      if (gradient.layout() != c10::kStrided ||
          !gradient.unsafeGetTensorImpl()->has_storage()) {
        recorder_->fail("a gradient of a result is not strided");
        return false;
      }
      if (recorder_->ledger().find_storage(gradient) >= 0) {
        // It lies in memory that is something else already: an operand that
        // does must not be taken for it, nor it for that.
        gradient = own_memory(gradient);
      }
      const auto input =
          static_cast<int32_t>(recorder_->trace().graph.inputs.size());
      recorder_->add_tangent(gradient, autograd_.outputs[index].output);
      step_tangents_[static_cast<size_t>(step)].push_back(input);
      continue;
    }
    const auto sent = pending_.find({node, slot});
    if (sent == pending_.end()) {
      recorder_->fail(
          "a gradient entered " + node->name() + " from outside of the call");
      return false;
    }
    if (sent->second.count > 1) {
      recorder_->place_sum(sent->second.value, gradient);
    } else if (recorder_->resolve(gradient) != sent->second.value) {
      recorder_->fail("a gradient was changed on its way to " + node->name());
      return false;
    }
  }
  return true;
}

void BackwardRecord::before(Node* node, variable_list& gradients) {
  std::unique_lock lock(mutex_);
  if (state_ == State::kDone || recorder_->failed()) {
    return;
  }
  if (state_ == State::kWaiting && !start()) {
    return;
  }
  if (torch::autograd::get_current_graph_task_id() != task_) {
    recorder_->fail("a backward inside the backward");
    return;
  }
  if (capturing()) {
    recorder_->fail("the backward ran inside another compiled call");
    return;
  }
  if (!takes_in(node, gradients)) {
    return;
  }
  last_.visited[nodes_.at(node)] = true;
  last_.user_code = last_.user_code || is_user_code(*node);
  inside_ = true;
  ops_before_ = recorder_->trace().graph.ops.size();
  for (const auto& gradient : gradients) {
    recorder_->enter(gradient);
  }
  recorder_->resume();
  begin_intercept(*recorder_);
}

// Whether the ops of a node read what the forward had saved.
void BackwardRecord::note_reader(Node* node) {
  const auto& trace = recorder_->trace();
  const auto saved = [&](ValueId id) {
    return id != kNoValue && static_cast<size_t>(id) < trace.forward.values;
  };
  for (size_t i = ops_before_; i < trace.graph.ops.size(); ++i) {
    for (const auto& operand : trace.graph.ops[i].operands) {
      if (saved(operand.value) ||
          std::any_of(operand.values.begin(), operand.values.end(), saved)) {
        last_.readers[nodes_.at(node)] = true;
        return;
      }
    }
  }
}

void BackwardRecord::after(Node* node, const at::TensorList& gradients) {
  std::unique_lock lock(mutex_);
  if (!inside_) {
    return;
  }
  end_intercept();
  recorder_->pause();
  recorder_->release_memory(gradients);
  inside_ = false;
  note_reader(node);
  const auto& edges = node->next_edges();
  for (size_t i = 0; i < gradients.size() && i < edges.size(); ++i) {
    if (!gradients[i].defined() || !edges[i].is_valid() ||
        recorder_->failed()) {
      continue;
    }
    if (!node->task_should_compute_output(i)) {
      continue;
    }
    const auto value = recorder_->resolve(gradients[i]);
    if (value == kNoValue) {
      recorder_->fail(
          node->name() + " returned a gradient that no tensor op made");
      return;
    }
    if (is_user_code(*node) && recorder_->is_uninitialised(value)) {
      recorder_->fail(kRawAccess);
      return;
    }
    const Port port{edges[i].function.get(), edges[i].input_nr};
    const auto send = [&](graph::Delivery::Target target, int32_t index) {
      sent_.push_back(
          {{target, index, value},
           static_cast<int32_t>(step_ends_.size()),
           static_cast<int32_t>(recorder_->trace().graph.ops.size())});
    };
    if (const auto input = input_ports_.find(port);
        input != input_ports_.end()) {
      send(
          graph::Delivery::Target::kInput,
          autograd_.inputs[static_cast<size_t>(input->second)]);
    } else if (const auto output = output_ports_.find(port);
               output != output_ports_.end()) {
      send(
          graph::Delivery::Target::kOutput,
          autograd_.outputs[static_cast<size_t>(output->second)].output);
    } else {
      auto& sum = pending_[port];
      sum.value =
          sum.count == 0 ? value : recorder_->record_sum(sum.value, value);
      ++sum.count;
    }
  }
}

// Segments end with a step, or where enough gradients have come together.
void BackwardRecord::cut_into_segments() {
  auto& graph = recorder_->trace().graph;
  close_step(autograd_.num_steps);
  const auto number =
      graph.segments.empty() ? 0 : graph.segments.back().backward + 1;
  size_t next = 0;
  int32_t first = first_op_;
  for (int32_t step = 0; step < autograd_.num_steps; ++step) {
    const auto step_end = step_ends_[static_cast<size_t>(step)];
    graph::Segment segment;
    segment.backward = number;
    segment.first_op = first;
    segment.tangents = step_tangents_[static_cast<size_t>(step)];
    last_.step_segments.push_back(static_cast<int32_t>(graph.segments.size()));
    size_t bytes = 0;
    for (; next < sent_.size() && sent_[next].step == step; ++next) {
      const auto& sent = sent_[next];
      if (bytes >= kBucketBytes && sent.at > sent_[next - 1].at) {
        segment.end_op = sent_[next - 1].at;
        graph.segments.push_back(segment);
        segment = {};
        segment.backward = number;
        segment.first_op = graph.segments.back().end_op;
        bytes = 0;
      }
      segment.deliveries.push_back(sent.delivery);
      bytes +=
          bytes_of(graph.values[static_cast<size_t>(sent.delivery.value)].type);
    }
    segment.end_op = step_end;
    graph.segments.push_back(std::move(segment));
    first = step_end;
  }
  last_.step_segments.push_back(static_cast<int32_t>(graph.segments.size()));
}

// The graph task has ended.
void BackwardRecord::finish() {
  std::unique_lock lock(mutex_);
  if (state_ != State::kRecording) {
    return;
  }
  state_ = State::kWaiting;
  auto& pattern = last_.pattern;
  if (pattern.first_step < 0 && !recorder_->failed()) {
    return; // No gradient came in: nothing was recorded.
  }
  // That an input gets nothing where nothing leads to it is known, too.
  for (size_t i = 0; i < pattern.needed.size(); ++i) {
    bool reached = false;
    for (size_t o = 0; o < pattern.tangents.size(); ++o) {
      reached =
          reached || (pattern.tangents[o] && autograd_.reach[o].inputs[i]);
    }
    if (!reached) {
      pattern.needed[i] = true;
    }
  }
  if (!recorder_->failed()) {
    cut_into_segments();
  }
  const auto done = done_;
  lock.unlock();
  if (done) {
    done(*this);
  }
}

} // namespace temper::capture
