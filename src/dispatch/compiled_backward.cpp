// The chain of autograd nodes of a compiled call (see dispatch/chain.h).
//
// Each output has a node of its own, which passes its gradient on: hooks of one
// output don't see those of another, and an output that gets no gradient is not
// visited. Behind them is the chain. A node's inputs: at the first node of a
// step, the gradients of the outputs that enter there; then one that is never
// defined and only makes the node wait for the one before it. Its outputs: what
// it delivers, then the edge to the next node. AccumulateGrad has the engine's
// highest priority, so what a node delivers reaches `.grad` before the next
// node runs.
//
// The first node that a backward reaches decides which of the recorded
// backwards it is: by the gradients that have come, those that will come from
// outside, and the inputs that are asked for. One that the plan doesn't know
// runs the user's code again (backward_rerun.h), and the call site hears of it.
// Edges that get nothing are taken out of the engine's task (engine_access.h)
// and put back when it has ended.
#include "dispatch/compiled_backward.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "capture/autograd_region.h"
#include "dispatch/backward_choice.h"
#include "dispatch/backward_rerun.h"
#include "dispatch/engine_access.h"
#include "dispatch/saved_values.h"
#include "ops/synthetic.h"
#include "runtime/executor.h"

namespace temper::dispatch {
namespace {

namespace autograd = torch::autograd;
using autograd::Edge;
using autograd::Node;
using autograd::variable_list;

class SegmentNode;

// The history of one output.
class ResultNode : public Node {
 public:
  std::string name() const override {
    return "TemperBackward";
  }
  variable_list apply(variable_list&& gradients) override {
    return {std::move(gradients[0])};
  }
};

// Edges that were taken out for one backward.
class RemovedEdges {
 public:
  void add(Node& node, size_t index) {
    edges_.emplace_back(
        node.getptr(), index, std::move(node.next_edges()[index]));
    node.next_edges()[index] = Edge();
  }
  /// The node is about to get edges beyond its own.
  void will_grow(Node& node) {
    grown_.emplace_back(node.getptr(), node.next_edges().size());
  }
  bool empty() const {
    return edges_.empty();
  }
  void put_back() {
    for (auto& [node, index, edge] : edges_) {
      node->next_edges()[index] = std::move(edge);
    }
    for (size_t i = grown_.size(); i-- > 0;) {
      grown_[i].first->next_edges().resize(grown_[i].second);
    }
    edges_.clear();
    grown_.clear();
  }

 private:
  std::vector<std::tuple<c10::intrusive_ptr<Node>, size_t, Edge>> edges_;
  std::vector<std::pair<c10::intrusive_ptr<Node>, size_t>> grown_;
};

/// Shared by the nodes of one call.
class ChainState : public std::enable_shared_from_this<ChainState> {
 public:
  ChainState(
      std::shared_ptr<const Plan> plan,
      const std::vector<at::Tensor>& arguments,
      const std::vector<at::Tensor>& outputs,
      BackwardFallback fallback);

  /// Before the first backward.
  void save(SavedValues saved) {
    saved_ = std::move(saved);
  }

  /// One node of a backward.
  variable_list apply(int32_t node, variable_list&& gradients);

  /// The engine's task has ended, or goes because it has thrown.
  void finish(int task);

  /// As `plan.autograd.inputs`: where their gradients go, or null. Edges of the
  /// nodes keep them: the engine frees long histories without recursion only
  /// through these.
  std::vector<Node*> input_nodes;
  std::vector<SegmentNode*> nodes;
  std::vector<c10::weak_intrusive_ptr<ResultNode>> results; ///< By output.

 private:
  static constexpr int32_t kRerun = -1;
  static constexpr int kNoTask = -1;

  void begin(int32_t node, const variable_list& gradients);
  int32_t choose(int32_t node, const variable_list& gradients);
  bool comes_from_outside(int32_t output, int32_t first_node) const;
  void consume(int32_t node, const variable_list& gradients);
  void begin_step(int32_t node, const variable_list& gradients);
  void rerun_step(int32_t entry, int32_t first, const variable_list& gradients);
  variable_list send(int32_t node, variable_list&& gradients);
  variable_list run_program(int32_t node, variable_list&& gradients);
  void remove(int32_t node, int32_t edge);

  std::shared_ptr<const Plan> plan_;
  BackwardRerun rerun_;
  SavedValues saved_;
  std::vector<bool> consumed_; ///< By autograd node of the call.
  /// The engine's task whose progress the members below are.
  std::atomic<int> task_ = kNoTask;
  int32_t run_ = kRerun; ///< Index into `plan.backwards`, or kRerun.
  bool releasing_ = false;
  std::vector<bool> ignored_; ///< See `BackwardChoice`.
  std::vector<at::Tensor> carried_;
  /// Until a node behind this one runs: see `Work::shared`.
  std::vector<std::pair<int32_t, at::Tensor>> held_;
  std::vector<variable_list> rerun_sends_; ///< By node of the step, by edge.
  RemovedEdges removed_;
  /// What entered at the step, if its programs may have to be given up.
  variable_list entered_;
  bool carries_ = false; ///< Something from earlier steps, when it began.
  int32_t current_ = 0; ///< The node that runs.
  size_t extra_edges_ = 0; ///< That it has got.
};

// Ends a backward's progress: the engine calls it, or destroys it with a task
// that has thrown.
class EndOfTask {
 public:
  EndOfTask(std::shared_ptr<ChainState> state, int task)
      : state_(std::move(state)), task_(task) {}
  ~EndOfTask() {
    state_->finish(task_);
  }
  EndOfTask(const EndOfTask&) = delete;
  EndOfTask& operator=(const EndOfTask&) = delete;
  void operator()() const {
    state_->finish(task_);
  }

 private:
  std::shared_ptr<ChainState> state_;
  int task_;
};

class SegmentNode : public Node {
 public:
  SegmentNode(std::shared_ptr<ChainState> state, int32_t index)
      : state_(std::move(state)), index_(index) {}

  std::string name() const override {
    return "TemperBackward";
  }
  variable_list apply(variable_list&& gradients) override {
    return state_->apply(index_, std::move(gradients));
  }

 private:
  std::shared_ptr<ChainState> state_;
  int32_t index_;
};

ChainState::ChainState(
    std::shared_ptr<const Plan> plan,
    const std::vector<at::Tensor>& arguments,
    const std::vector<at::Tensor>& outputs,
    BackwardFallback fallback)
    : plan_(plan),
      rerun_(std::move(plan), arguments, outputs, std::move(fallback)) {
  consumed_.resize(
      plan_->autograd.reach.empty() ? 0
                                    : plan_->autograd.reach[0].nodes.size());
}

// Whether something else than the chain sends a gradient to an output of a
// later step, or may: nodes outside need not have run yet.
bool ChainState::comes_from_outside(int32_t output, int32_t first_node) const {
  const auto& chain = plan_->chain;
  const auto step = plan_->autograd.outputs[static_cast<size_t>(output)].step;
  const auto entry = chain.first_node(step);
  auto* node = nodes[static_cast<size_t>(entry)];
  auto* task = current_graph_task();
  TEMPER_INTERNAL(task != nullptr);
  const auto& entering = chain.nodes[static_cast<size_t>(entry)].entering;
  const auto slot =
      std::find(entering.begin(), entering.end(), output) - entering.begin();
  const auto result = results[static_cast<size_t>(output)].lock();
  if (!result) {
    return false; // Nothing leads there any more.
  }
  if (has_gradient(*task, node, static_cast<uint32_t>(slot)) ||
      has_gradient(*task, result.get(), 0)) {
    return true;
  }
  int inside = 0;
  for (auto n = static_cast<size_t>(first_node); n < chain.nodes.size(); ++n) {
    for (const auto& edge : nodes[n]->next_edges()) {
      inside += edge.function.get() == result.get() ? 1 : 0;
    }
  }
  return pending_edges(*task, result.get()) > inside;
}

// The recorded backward that this one is, or kRerun.
int32_t ChainState::choose(int32_t node, const variable_list& gradients) {
  const auto& first = plan_->chain.nodes[static_cast<size_t>(node)];
  // Anomaly mode looks at each of eager's nodes.
  if (plan_->backwards.empty() || at::GradMode::is_enabled() ||
      autograd::AnomalyMode::is_enabled()) {
    return kRerun;
  }
  Arriving arriving;
  arriving.first_step = first.step;
  const auto& outputs = plan_->autograd.outputs;
  arriving.gradients.resize(outputs.size());
  arriving.arrived.resize(outputs.size());
  for (size_t o = 0; o < outputs.size(); ++o) {
    arriving.gradients[o] = outputs[o].step > first.step &&
        comes_from_outside(static_cast<int32_t>(o), node);
  }
  for (size_t i = 0; i < first.entering.size(); ++i) {
    const auto o = static_cast<size_t>(first.entering[i]);
    arriving.gradients[o] = gradients[i].defined();
    arriving.arrived[o] = gradients[i];
  }
  for (auto* input : input_nodes) {
    arriving.inputs.push_back(
        input == nullptr                 ? Arriving::Asked::kHasNone
            : capture::will_visit(input) ? Arriving::Asked::kYes
                                         : Arriving::Asked::kNo);
  }
  arriving.autocast = capture::autocast_state();
  auto choice = choose_backward(*plan_, arriving);
  if (!choice) {
    return kRerun;
  }
  ignored_ = std::move(choice->ignored);
  return choice->backward;
}

// Nodes that read what was saved run once, unless the graph is retained.
void ChainState::consume(int32_t node, const variable_list& gradients) {
  const auto& traced = plan_->autograd;
  std::vector<bool> readers(consumed_.size());
  if (run_ != kRerun) {
    readers = plan_->readers[static_cast<size_t>(run_)];
  } else {
    const auto& entering =
        plan_->chain.nodes[static_cast<size_t>(node)].entering;
    for (size_t i = 0; i < entering.size(); ++i) {
      const auto o = static_cast<size_t>(entering[i]);
      for (size_t n = 0; n < readers.size() && gradients[i].defined(); ++n) {
        // The graph of the new run tells of nodes that no recorded backward has
        // visited, unless several steps need it.
        readers[n] = readers[n] ||
            (traced.reach[o].nodes[n] &&
             (plan_->is_reader(n) ||
              (traced.num_steps > 1 && !plan_->is_visited(n))));
      }
    }
  }
  for (size_t n = 0; n < readers.size(); ++n) {
    TORCH_CHECK(!readers[n] || !consumed_[n], autograd::ERR_BACKWARD_TWICE);
  }
  if (!releasing_) {
    return;
  }
  for (size_t n = 0; n < readers.size(); ++n) {
    consumed_[n] = consumed_[n] || readers[n];
  }
}

// The first node of a backward.
void ChainState::begin(int32_t node, const variable_list& gradients) {
  const int task = autograd::get_current_graph_task_id();
  int other = kNoTask;
  // In eager mode these could mix; here one call's nodes share their progress.
  TEMPER_CHECK(
      task_.compare_exchange_strong(other, task),
      "a backward reached a call of '",
      plan_->name,
      "' that another backward, of another thread or around this one, was going "
      "through; run them one after the other, or this model without compile()");
  autograd::Engine::get_default_engine().queue_callback(
      [end = std::make_shared<EndOfTask>(shared_from_this(), task)] {
        (*end)();
      });
  run_ = choose(node, gradients);
  releasing_ = !autograd::get_current_graph_task_keep_graph();
  held_.clear();
  carried_.assign(
      static_cast<size_t>(plan_->artifact->num_carried), at::Tensor());
  consume(node, gradients);
  if (run_ == kRerun) {
    if (!autograd::AnomalyMode::is_enabled()) {
      rerun_.report();
    }
    return;
  }
  rerun_.count_program_backward();
  saved_.begin(*plan_, run_, releasing_ ? &consumed_ : nullptr);
}

void ChainState::finish(int task) {
  int nobody = kNoTask;
  if (task_ != task && !task_.compare_exchange_strong(nobody, task)) {
    return; // Another has begun since the last node of this one.
  }
  removed_.put_back();
  carried_.clear();
  held_.clear();
  entered_.clear();
  rerun_sends_.clear();
  task_ = kNoTask;
}

void ChainState::remove(int32_t node, int32_t edge) {
  auto& from = *nodes[static_cast<size_t>(node)];
  const auto& next = from.next_edges()[static_cast<size_t>(edge)];
  std::vector<Node*> waiting;
  if (!next.is_valid() ||
      !remove_edge(*current_graph_task(), next.function.get(), waiting)) {
    return;
  }
  removed_.add(from, static_cast<size_t>(edge));
  auto& current = *nodes[static_cast<size_t>(current_)];
  for (auto* each : waiting) {
    removed_.will_grow(current);
    current.next_edges().emplace_back(each->getptr(), 0);
    ++extra_edges_;
  }
}

// Settles what the nodes of a step send, and takes out the edges that get
// nothing.
void ChainState::begin_step(int32_t node, const variable_list& gradients) {
  if (run_ == kRerun) {
    rerun_step(node, node, gradients);
    return;
  }
  const auto& chain = plan_->chain;
  const auto step = chain.nodes[static_cast<size_t>(node)].step;
  const auto end = chain.first_node(step + 1);
  const auto& run = chain.runs[static_cast<size_t>(run_)];
  for (auto n = node; n < end; ++n) {
    for (const auto edge : run.nodes[static_cast<size_t>(n)].idle) {
      remove(n, edge);
    }
  }
  entered_ = plan_->expects_layouts ? gradients : variable_list();
  carries_ = plan_->expects_layouts &&
      std::any_of(
                 carried_.begin(), carried_.end(), [](const at::Tensor& value) {
                   return value.defined();
                 });
}

// `begin_step` by the user's code, of the step that begins at `entry`. Nodes
// before `first` have sent already what the code gives them, too.
void ChainState::rerun_step(
    int32_t entry,
    int32_t first,
    const variable_list& gradients) {
  const auto& chain = plan_->chain;
  const auto step = chain.nodes[static_cast<size_t>(entry)].step;
  const auto end = chain.first_node(step + 1);
  BackwardRerun::Gradients sent;
  sent.inputs.resize(plan_->autograd.inputs.size());
  sent.outputs.resize(plan_->autograd.outputs.size());
  if (std::any_of(
          gradients.begin(), gradients.end(), [](const at::Tensor& gradient) {
            return gradient.defined();
          })) {
    std::vector<c10::intrusive_ptr<Node>> own_results;
    for (const auto& each : results) {
      own_results.emplace_back(each.lock());
    }
    sent = rerun_.gradients(
        chain.nodes[static_cast<size_t>(entry)].entering,
        gradients,
        own_results);
  }
  // Each contribution takes the next edge to its target.
  std::vector<size_t> next_input(sent.inputs.size());
  std::vector<size_t> next_output(sent.outputs.size());
  rerun_sends_.assign(static_cast<size_t>(end - entry), {});
  for (auto n = entry; n < end; ++n) {
    const auto& targets = chain.nodes[static_cast<size_t>(n)].targets;
    auto& sends = rerun_sends_[static_cast<size_t>(n - entry)];
    sends.resize(targets.size());
    for (size_t edge = 0; edge < targets.size(); ++edge) {
      const auto index = static_cast<size_t>(targets[edge].index);
      const bool to_input = targets[edge].kind == Chain::Target::Kind::kInput;
      auto& list = to_input ? sent.inputs[index] : sent.outputs[index];
      auto& next = to_input ? next_input[index] : next_output[index];
      if (next < list.size()) {
        sends[edge] = std::move(list[next++]);
        TEMPER_CHECK(
            !sends[edge].defined() ||
                nodes[static_cast<size_t>(n)]->next_edges()[edge].is_valid(),
            "a backward of '",
            plan_->name,
            "' gives a gradient where it gave none before, and it has begun as "
            "before; run it without compile()");
      } else if (n >= first) {
        remove(n, static_cast<int32_t>(edge));
      }
    }
  }
  for (size_t i = 0; i < next_input.size(); ++i) {
    TEMPER_INTERNAL(next_input[i] == sent.inputs[i].size());
  }
  for (size_t i = 0; i < next_output.size(); ++i) {
    TEMPER_INTERNAL(next_output[i] == sent.outputs[i].size());
  }
}

variable_list ChainState::apply(int32_t node, variable_list&& gradients) {
  auto result = send(node, std::move(gradients));
  result.resize(result.size() + extra_edges_);
  const bool last = static_cast<size_t>(node) + 1 == plan_->chain.nodes.size();
  if (last && removed_.empty()) {
    carried_.clear();
    rerun_sends_.clear();
    entered_.clear();
    task_ = kNoTask; // A hook behind it may run a backward of its own.
  }
  return result;
}

variable_list ChainState::send(int32_t node, variable_list&& gradients) {
  if (!at::GradMode::is_enabled()) {
    std::for_each(gradients.begin(), gradients.end(), capture::resolve);
  }
  if (autograd::get_current_graph_task_id() != task_) {
    begin(node, gradients);
  }
  held_.erase(
      std::remove_if(
          held_.begin(),
          held_.end(),
          [&](const auto& held) { return held.first < node; }),
      held_.end());
  current_ = node;
  extra_edges_ = 0;
  const auto& chain = plan_->chain;
  const auto& here = chain.nodes[static_cast<size_t>(node)];
  const auto entry = chain.first_node(here.step);
  if (node == entry) {
    begin_step(node, gradients);
  }
  variable_list result;
  if (run_ != kRerun) {
    try {
      result = run_program(node, std::move(gradients));
    } catch (const ops::UnexpectedLayout& error) {
      rerun_.report(error.reason());
      // The code gives what follows from this step's gradients.
      TEMPER_CHECK(
          !carries_,
          "the backward of '",
          plan_->name,
          "' can't go on: ",
          error.reason(),
          ", and parts of its gradients are underway from results that were "
          "computed from others; call it again, which will be eager");
      run_ = kRerun;
      rerun_step(entry, node, entered_);
    }
  }
  if (run_ == kRerun) {
    result = std::move(rerun_sends_[static_cast<size_t>(node - entry)]);
  }
  if (static_cast<size_t>(node) + 1 < chain.nodes.size()) {
    result.emplace_back(); // To the next node.
    return result;
  }
  if (releasing_) {
    // What no backward can come for any more.
    const auto& reach = plan_->autograd.reach;
    const bool over =
        std::all_of(reach.begin(), reach.end(), [&](const auto& of) {
          for (size_t n = 0; n < of.nodes.size(); ++n) {
            if (of.nodes[n] && consumed_[n]) {
              return true;
            }
          }
          return false;
        });
    if (over) {
      rerun_.release();
      saved_ = {};
    }
  }
  return result;
}

variable_list ChainState::run_program(int32_t node, variable_list&& gradients) {
  const auto& plan = *plan_;
  const auto& here = plan.chain.nodes[static_cast<size_t>(node)];
  const auto& run = plan.chain.runs[static_cast<size_t>(run_)];
  const auto& work = run.nodes[static_cast<size_t>(node)];
  variable_list result(here.targets.size());
  const auto& recorded = plan.backwards[static_cast<size_t>(run_)];
  const auto& pattern = recorded.pattern;
  for (size_t i = 0; i < here.entering.size(); ++i) {
    const auto o = static_cast<size_t>(here.entering[i]);
    TEMPER_CHECK(
        !gradients[i].defined() || pattern.tangents[o] || ignored_[o],
        "a gradient reached a result of '",
        plan.name,
        "' in the middle of a backward, where none was on its way when the "
        "backward began; run it without compile()");
  }
  if (work.segment < 0) {
    return result;
  }
  const auto& program =
      plan.artifact->segments[static_cast<size_t>(work.segment)];
  std::vector<at::Tensor> inputs;
  // Where the program's own values will lie, too.
  inputs.reserve(static_cast<size_t>(program.program->num_registers));
  for (const auto saved : program.saved) {
    inputs.push_back(saved_.take(run, saved, node));
  }
  for (const auto tangent : work.tangents) {
    auto& gradient = gradients[static_cast<size_t>(tangent)];
    if (!gradient.defined()) {
      // A function outside gave no gradient although one leads there.
      gradient = nodes[static_cast<size_t>(node)]
                     ->input_metadata(static_cast<size_t>(tangent))
                     .zeros_like();
    }
    if (here.step != pattern.first_step) {
      // It was chosen by the layouts of those that came first.
      const auto o = here.entering[static_cast<size_t>(tangent)];
      gradient = recorded.layouts[static_cast<size_t>(o)].applied(gradient);
    }
    inputs.push_back(std::move(gradient));
  }
  gradients.clear();
  for (const auto carried : program.carried_in) {
    auto& value = carried_[static_cast<size_t>(carried)];
    const bool last = run.last_carried[static_cast<size_t>(carried)] == node;
    inputs.push_back(last ? std::move(value) : value);
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
  const auto deliveries = work.targets.size();
  for (size_t i = 0; i < program.carried_out.size(); ++i) {
    carried_[static_cast<size_t>(program.carried_out[i])] =
        std::move(outputs[deliveries + i]);
  }
  for (const auto& shared : work.shared) {
    held_.emplace_back(
        shared.last_node,
        outputs[static_cast<size_t>(shared.delivery)].detach());
  }
  for (size_t d = 0; d < deliveries; ++d) {
    result[static_cast<size_t>(work.targets[d])] = std::move(outputs[d]);
  }
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
  const auto& chain = plan.chain;
  auto state = std::make_shared<ChainState>(
      plan_pointer, arguments, outputs, std::move(fallback));
  std::vector<Edge> input_edges;
  for (size_t i = 0; i < plan.autograd.inputs.size(); ++i) {
    const auto tensor = input_tensor(plan, plan.autograd.inputs[i], arguments);
    auto& edge = input_edges.emplace_back();
    if (tensor.requires_grad()) {
      edge = autograd::impl::gradient_edge(tensor);
      if (tensor.is_leaf()) {
        // Of gradients that one node delivers the engine accumulates first
        // what eager's does; all these have its highest priority. The first
        // plan decides, so that the number is written once: another thread's
        // engine may read it meanwhile, and takes either for its own order.
        constexpr auto kNone = std::numeric_limits<uint64_t>::max();
        if (edge.function->sequence_nr() == kNone && chain.input_order[i] > 0) {
          edge.function->set_sequence_nr(kNone - chain.input_order[i]);
        }
      }
    }
    state->input_nodes.push_back(edge.function.get());
  }
  std::vector<c10::intrusive_ptr<SegmentNode>> nodes;
  for (size_t n = 0; n < chain.nodes.size(); ++n) {
    nodes.push_back(
        c10::make_intrusive<SegmentNode>(state, static_cast<int32_t>(n)));
    state->nodes.push_back(nodes.back().get());
    for (const auto o : chain.nodes[n].entering) {
      nodes[n]->add_input_metadata(outputs[static_cast<size_t>(
          plan.autograd.outputs[static_cast<size_t>(o)].output)]);
    }
    nodes[n]->add_input_metadata(Node::undefined_input{});
  }
  std::vector<c10::intrusive_ptr<ResultNode>> results(
      plan.autograd.outputs.size());
  std::vector<uint64_t> numbers; // In which the engine takes what came last.
  for (size_t o = 0; o < results.size(); ++o) {
    numbers.push_back(at::sequence_number::get_and_increment());
  }
  // Last node first: the engine wants a node's edges before it has a parent.
  for (size_t n = chain.nodes.size(); n-- > 0;) {
    for (const auto& target : chain.nodes[n].targets) {
      const auto index = static_cast<size_t>(target.index);
      nodes[n]->add_next_edge(
          target.kind == Chain::Target::Kind::kInput ? input_edges[index]
                                                     : Edge(results[index], 0));
    }
    if (n + 1 < chain.nodes.size()) {
      const auto waits = chain.nodes[n + 1].entering.size();
      nodes[n]->add_next_edge(Edge(nodes[n + 1], static_cast<uint32_t>(waits)));
    }
    for (size_t slot = 0; slot < chain.nodes[n].entering.size(); ++slot) {
      const auto o = static_cast<size_t>(chain.nodes[n].entering[slot]);
      const auto& traced = plan.autograd.outputs[o];
      results[o] = c10::make_intrusive<ResultNode>();
      results[o]->set_sequence_nr(numbers[static_cast<size_t>(traced.made)]);
      results[o]->add_input_metadata(
          outputs[static_cast<size_t>(traced.output)]);
      results[o]->add_next_edge(Edge(nodes[n], static_cast<uint32_t>(slot)));
    }
  }
  for (size_t o = 0; o < results.size(); ++o) {
    state->results.emplace_back(results[o]);
    const auto& output =
        outputs[static_cast<size_t>(plan.autograd.outputs[o].output)];
    if (output.grad_fn() != nullptr) {
      // An argument that was written: as eager does it, for retain_grad().
      autograd::impl::rebase_history(output, Edge(results[o], 0));
    } else {
      autograd::impl::set_gradient_edge(output, Edge(results[o], 0));
    }
  }
  state->save(SavedValues(plan, arguments, outputs, std::move(private_values)));
}

} // namespace temper::dispatch
