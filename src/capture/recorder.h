// The recorder: writes down the ops of a real eager call as a raw graph.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/generator_state.h"
#include "capture/interceptor.h"
#include "capture/ledger.h"
#include "capture/raw_access.h"
#include "capture/trace.h"

namespace temper::capture {

/// A tensor of the watched state.
struct WatchedTensor {
  at::Tensor tensor;
  graph::Role role = graph::Role::kField;
  std::string path;
};

/// Finds a tensor that no op of the capture made among the watched ones: this
/// very object, or the one whose memory it looks at in the same way.
using FindWatched =
    std::function<std::optional<WatchedTensor>(const at::Tensor&)>;

/// Records the ops of one thread at a time into a `Trace`. After the first
/// thing it can't record it only passes ops through (`trace().unsupported`
/// has the reason).
class Recorder : public Interceptor {
 public:
  Recorder(
      std::vector<at::Tensor> arguments,
      std::vector<std::string> argument_names,
      FindWatched find_watched);

  void handle(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack) override;

  /// Notes why this call can't be served by a program; the first reason wins.
  void fail(const std::string& reason);
  bool failed() const {
    return !trace_.unsupported.empty();
  }

  /// The value that `tensor` is, made a graph input if it is an argument or
  /// watched; kNoValue if it is of unknown origin.
  graph::ValueId resolve(const at::Tensor& tensor);
  /// The graph input for argument `index`, added if no op has used it.
  int32_t input_of_argument(int32_t index);
  /// The graph input for a watched tensor, likewise; -1 if it isn't watched.
  int32_t input_of_watched(const at::Tensor& tensor);

  /// Adds a value with the type of `tensor` in a new storage and binds it.
  graph::ValueId add_fresh(const at::Tensor& tensor);
  /// Adds a tangent input for `tensor`: the gradient of graph output `output`.
  graph::ValueId add_tangent(const at::Tensor& tensor, int32_t output);
  /// Records `a + b` that the autograd engine does by itself; its tensor isn't
  /// known yet.
  graph::ValueId record_sum(graph::ValueId a, graph::ValueId b);
  /// Says that `tensor` holds the value of a `record_sum`.
  void place_sum(graph::ValueId sum, const at::Tensor& tensor);

  Trace& trace() {
    return trace_;
  }
  const Trace& trace() const {
    return trace_;
  }
  const Ledger& ledger() const {
    return ledger_;
  }
  /// Autograd nodes that the call makes have this number or a higher one.
  uint64_t first_sequence_number() const {
    return first_sequence_number_;
  }
  /// Of a graph input that is no tangent.
  at::Tensor tensor_of(const Binding& binding) const {
    return binding.tensor(arguments_);
  }
  /// The user's code runs on this thread from now on, until `pause`: what it
  /// does to memory past operators is noticed.
  void resume();
  void pause();
  /// Before `resume`: the code gets this tensor, until `pause`.
  void enter(const at::Tensor& tensor);
  /// What the code gives away is not watched any more.
  void release_memory(c10::ArrayRef<at::Tensor> tensors);
  /// The call has ended with these results: fills `Binding::version_steps`, and
  /// their memory is the user's now.
  void end_call(const std::vector<at::Tensor>& results);
  /// What reasons say of where the op was, e.g. "in its backward", until the
  /// next watched tensor is used.
  void set_place(std::string place) {
    place_ = std::move(place);
  }
  /// Keeps the arguments' memory and not themselves, but for leaves that
  /// require grad: they may get, or have got, a history whose hooks keep the
  /// recorder.
  void let_go_of_arguments();
  /// Nothing will be recorded any more: gives the arguments away.
  std::vector<at::Tensor> take_arguments() {
    own_arguments_.clear();
    return std::exchange(arguments_, {});
  }
  /// True iff nothing but code outside of ops has filled this value's memory,
  /// or nothing at all.
  bool is_uninitialised(graph::ValueId value) const;
  /// True iff another thread has looked at the call's memory: perhaps not
  /// because of this call.
  bool memory_touched_elsewhere() const {
    return raw_.seen_elsewhere();
  }
  /// Compares the generator's state with that after the last op: true iff
  /// somebody drew or seeded behind the dispatcher.
  bool generator_touched() const;

 private:
  /// The tensors that an op writes, with what they are.
  using WrittenOperands =
      c10::SmallVector<std::pair<at::Tensor, graph::ValueId>, 2>;

  bool collect(
      const c10::OperatorHandle& op,
      const OpInfo& info,
      const c10::IValue* arguments,
      graph::Op& out);
  graph::ValueId operand(
      const OpInfo& info,
      const at::Tensor& tensor,
      bool written);
  graph::ValueId add_input(
      const at::Tensor& tensor,
      graph::Role role,
      const std::string& name,
      Binding binding);
  graph::ValueId add_value(const at::Tensor& tensor, int32_t storage);
  int32_t add_storage(const at::Tensor& tensor, int32_t input);
  void add_restrided(graph::ValueId source, const at::Tensor& tensor);
  graph::ValueId add_wrapped_number(const at::Tensor& tensor);
  graph::ValueId add_literal(const at::Tensor& tensor, graph::ValueId source);
  void add_expected_layout(
      const at::Tensor& tensor,
      graph::ValueId value,
      const std::string& made_by);
  const char* free_offset(const graph::Op& op) const;
  int32_t add_watched(const WatchedTensor& watched);
  int32_t add_slot(const c10::IValue& value);
  void watch_values(const graph::Op& op);
  void watch_memory(const at::Tensor& tensor);
  void handle_op(
      const OpInfo& info,
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack);
  void record_results(
      const OpInfo& info,
      graph::Op& op,
      const c10::IValue* results,
      size_t count,
      const WrittenOperands& written);
  void handle_equal(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack);

  std::vector<at::Tensor> arguments_;
  std::vector<at::Tensor> own_arguments_; ///< Defined, and not watched.
  std::vector<std::string> names_;
  std::vector<int32_t> argument_inputs_; ///< Graph inputs, or -1.
  FindWatched find_watched_;
  Trace trace_;
  Ledger ledger_;
  /// By graph input: its version when it became one; -1 if it has none.
  std::vector<int64_t> start_versions_;
  /// For storages made uninitialised by an op: that op, else -1.
  std::vector<int32_t> uninitialised_by_;
  GeneratorState generator_;
  RawAccess raw_;
  std::vector<at::Tensor> entered_;
  /// Memory of the call's results.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> results_;
  const int task_; ///< Of the engine's, in which the call began; or -1.
  const uint64_t first_sequence_number_;
  bool ended_ = false; ///< The call has returned.
  std::string place_; ///< See `set_place`; mostly "after 'head.weight'".
};

} // namespace temper::capture
