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
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "ops/synthetic.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::ValueId;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Gradients are handed over when this much has come together, so that they
// reach `.grad` (and later all-reduces) while the backward goes on, and are not
// all alive beside an old `.grad` at its end.
constexpr size_t kBucketBytes = 1 << 20;
std::atomic<size_t> bucket_bytes{kBucketBytes};

// The hooks of one graph, which go with it.
struct Hold {
  explicit Hold(std::shared_ptr<BackwardRecord> the_record)
      : record(std::move(the_record)) {}
  ~Hold() {
    record->graph_is_gone();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  const std::shared_ptr<BackwardRecord> record;
};

struct PreHook : torch::autograd::FunctionPreHook {
  PreHook(std::shared_ptr<Hold> the_hold, Node* the_node)
      : hold(std::move(the_hold)), node(the_node) {}
  variable_list operator()(const variable_list& gradients) override {
    auto result = gradients;
    hold->record->before(node, result);
    return result;
  }
  std::shared_ptr<Hold> hold;
  Node* node;
};

struct PostHook : torch::autograd::FunctionPostHook {
  PostHook(std::shared_ptr<Hold> the_hold, Node* the_node)
      : hold(std::move(the_hold)), node(the_node) {}
  variable_list operator()(
      const variable_list& outputs,
      const variable_list& /*inputs*/) override {
    hold->record->after(node, outputs);
    return outputs;
  }
  std::shared_ptr<Hold> hold;
  Node* node;
};

// The same content and strides in new memory.
at::Tensor own_memory(const at::Tensor& tensor) {
  static const auto copy =
      ops::copy_memory().typed<at::Tensor(const at::Tensor&, bool)>();
  const at::NoGradGuard no_grad;
  return copy.call(tensor, false);
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

} // namespace

void set_bucket_bytes(size_t bytes) {
  bucket_bytes = bytes;
}

// What the engine calls when its task has ended, or destroys with a task that
// has thrown.
class BackwardRecord::EndOfTask {
 public:
  EndOfTask(std::weak_ptr<BackwardRecord> record, int task)
      : record_(std::move(record)), task_(task) {}
  ~EndOfTask() {
    if (const auto record = record_.lock()) {
      record->break_off(task_);
    }
  }
  EndOfTask(const EndOfTask&) = delete;
  EndOfTask& operator=(const EndOfTask&) = delete;
  void operator()() const {
    if (const auto record = record_.lock()) {
      record->finish();
    }
  }

 private:
  std::weak_ptr<BackwardRecord> record_;
  int task_;
};

BackwardRecord::~BackwardRecord() = default;

std::shared_ptr<BackwardRecord> BackwardRecord::begin(
    std::unique_ptr<Recorder>& recorder,
    const TracedCall& call,
    AutogradTrace& autograd,
    Done done) {
  auto region = find_region(*recorder, call, autograd);
  if (!region) {
    return nullptr;
  }
  find_late_views(*region, call);
  end_forward(recorder->trace());
  std::shared_ptr<BackwardRecord> record(new BackwardRecord());
  record->region_ = std::move(*region);
  record->autograd_ = autograd;
  record->recorder_ = std::move(recorder);
  record->done_ = std::move(done);
  const auto hold = std::make_shared<Hold>(record);
  for (const auto& [node, place] : record->region_.nodes) {
    node->add_pre_hook(std::make_unique<PreHook>(hold, node));
    node->add_post_hook(std::make_unique<PostHook>(hold, node));
  }
  return record;
}

// The first node of a backward.
bool BackwardRecord::start() {
  state_ = State::kRecording;
  task_ = torch::autograd::get_current_graph_task_id();
  last_ = {};
  last_.pattern.first_step = -1;
  last_.pattern.tangents.resize(autograd_.outputs.size());
  last_.pattern.layouts.resize(autograd_.outputs.size());
  last_.layouts.resize(autograd_.outputs.size());
  last_.pattern.needed.resize(autograd_.inputs.size());
  last_.readers.resize(region_.nodes.size());
  last_.visited.resize(region_.nodes.size());
  last_.pattern.autocast = autocast_state();
  first_op_ = static_cast<int32_t>(recorder_->trace().graph.ops.size());
  pending_.clear();
  sent_.clear();
  step_ends_.clear();
  step_tangents_.assign(static_cast<size_t>(autograd_.num_steps), {});
  for (const auto& [port, index] : region_.inputs) {
    last_.pattern.needed[static_cast<size_t>(index)] = will_visit(port.first);
  }
  if (at::GradMode::is_enabled()) {
    recorder_->set_place("");
    recorder_->fail("double backward (create_graph) through the call");
  }
  recorder_->set_place("in its backward");
  torch::autograd::Engine::get_default_engine().queue_callback(
      [end = std::make_shared<EndOfTask>(weak_from_this(), task_)] {
        (*end)();
      });
  return !recorder_->failed();
}

bool BackwardRecord::abandon() {
  const std::scoped_lock lock(mutex_);
  if (state_ == State::kRecording || state_ == State::kHandingOver) {
    return false;
  }
  state_ = State::kDone;
  done_ = nullptr;
  return true;
}

void BackwardRecord::graph_is_gone() {
  std::vector<at::Tensor> arguments; // Which may take other graphs along.
  const std::scoped_lock lock(mutex_);
  arguments = recorder_->take_arguments();
}

void BackwardRecord::break_off(int task) {
  const std::scoped_lock lock(mutex_);
  if (state_ != State::kRecording || task != task_) {
    return;
  }
  state_ = State::kThrew;
  if (inside_) { // The node threw: its post hook was not called.
    inside_ = false;
    if (current_interceptor() == recorder_.get()) {
      end_intercept();
    }
    recorder_->pause();
  }
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
    const auto output = region_.outputs.find({node, slot});
    if (output != region_.outputs.end()) {
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
      if (!is_recordable(gradient)) {
        recorder_->fail("a gradient of a result is not strided");
        return false;
      }
      resolve(gradient);
      if (step == pattern.first_step) {
        pattern.layouts[index] = GradientLayout(gradient);
      } else if (!gradient.is_non_overlapping_and_dense()) {
        // What comes later can be laid out like this one then: a backward that
        // is underway can't become one of another kind.
        const at::NoGradGuard no_grad;
        gradient = gradient.contiguous();
      }
      last_.layouts[index] = GradientLayout(gradient);
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
  if ((state_ != State::kWaiting && state_ != State::kRecording) ||
      recorder_->failed()) {
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
  last_.visited[region_.nodes.at(node)] = true;
  last_.user_code = last_.user_code || is_user_code(*node);
  inside_ = true;
  ops_before_ = recorder_->trace().graph.ops.size();
  values_before_ = recorder_->trace().graph.values.size();
  objects_before_.clear();
  if (is_user_code(*node)) {
    note_objects(objects_before_);
  }
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
        last_.readers[region_.nodes.at(node)] = true;
        return;
      }
    }
  }
}

void BackwardRecord::note_objects(std::vector<ObjectState>& states) const {
  const auto& trace = recorder_->trace();
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    const bool tangent = trace.graph.inputs[i].role == graph::Role::kTangent;
    states.push_back(
        tangent ? ObjectState()
                : ObjectState::of(recorder_->tensor_of(trace.bindings[i])));
  }
}

// What the code of a node did beside giving gradients ("Scale keeps …"), as a
// backward of its own inside does: it sets gradients. Empty if nothing.
std::string BackwardRecord::effect_of(
    const Node& node,
    const at::TensorList& gradients) const {
  const auto& trace = recorder_->trace();
  std::vector<ObjectState> now;
  note_objects(now);
  for (size_t i = 0; i < objects_before_.size(); ++i) {
    if (const char* what = objects_before_[i].change(now[i])) {
      return c10::str(
          node.name(), " ", what, " '", trace.graph.inputs[i].name, "'");
    }
  }
  for (const auto value : recorder_->ledger().alive_values()) {
    const auto storage = trace.values[static_cast<size_t>(value)].storage;
    const bool given = std::any_of(
        gradients.begin(), gradients.end(), [&](const auto& gradient) {
          return gradient.defined() &&
              recorder_->ledger().find_storage(gradient) == storage;
        });
    if (static_cast<size_t>(value) >= values_before_ && !given) {
      return node.name() +
          " keeps a tensor that its backward made (or a gradient that a "
          "backward inside it left)";
    }
  }
  return "";
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
  if (is_user_code(*node) && !recorder_->failed()) {
    if (const auto effect = effect_of(*node, gradients); !effect.empty()) {
      recorder_->fail(effect);
      return;
    }
  }
  const auto& edges = node->next_edges();
  for (size_t i = 0; i < gradients.size() && i < edges.size(); ++i) {
    if (!edges[i].is_valid() || recorder_->failed() ||
        !node->task_should_compute_output(i)) {
      continue;
    }
    // An undefined gradient is sent, too: the engine visits what lies there.
    auto value = kNoValue;
    if (gradients[i].defined()) {
      value = recorder_->resolve(gradients[i]);
      if (value == kNoValue) {
        recorder_->fail(
            node->name() + " returned a gradient that no tensor op made");
        return;
      }
      if (is_user_code(*node) && recorder_->is_uninitialised(value)) {
        recorder_->fail(kRawAccess);
        return;
      }
    }
    const Port port{edges[i].function.get(), edges[i].input_nr};
    const auto send = [&](graph::Delivery::Target target, int32_t index) {
      sent_.push_back(
          {{target, index, value},
           static_cast<int32_t>(step_ends_.size()),
           static_cast<int32_t>(recorder_->trace().graph.ops.size())});
    };
    if (const auto input = region_.inputs.find(port);
        input != region_.inputs.end()) {
      send(
          graph::Delivery::Target::kInput,
          autograd_.inputs[static_cast<size_t>(input->second)]);
    } else if (const auto output = region_.outputs.find(port);
               output != region_.outputs.end()) {
      send(
          graph::Delivery::Target::kOutput,
          autograd_.outputs[static_cast<size_t>(output->second)].output);
    } else if (value != kNoValue) {
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
      if (bytes >= bucket_bytes && sent.at > sent_[next - 1].at) {
        segment.end_op = sent_[next - 1].at;
        graph.segments.push_back(segment);
        segment = {};
        segment.backward = number;
        segment.first_op = graph.segments.back().end_op;
        bytes = 0;
      }
      segment.deliveries.push_back(sent.delivery);
      if (sent.delivery.value != kNoValue) {
        bytes += bytes_of(
            graph.values[static_cast<size_t>(sent.delivery.value)].type);
      }
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
  auto& pattern = last_.pattern;
  if (pattern.first_step < 0 && !recorder_->failed()) {
    state_ = State::kWaiting;
    return; // No gradient came in: nothing was recorded.
  }
  state_ = State::kHandingOver;
  if (last_.user_code && recorder_->memory_touched_elsewhere()) {
    recorder_->fail(std::string(kRawAccess) + ", by a thread");
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
  lock.lock();
  if (state_ == State::kHandingOver) {
    state_ = State::kWaiting;
  }
}

} // namespace temper::capture
