// The recorder: writes down the ops of a real eager call as a raw graph.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "capture/generator_state.h"
#include "capture/interceptor.h"
#include "capture/ledger.h"
#include "capture/trace.h"

namespace temper::capture {

/// A tensor of the watched state.
struct WatchedTensor {
  at::Tensor tensor;
  graph::Role role = graph::Role::kField;
  std::string path;
};

/// Finds a tensor that no op of the capture made among the watched ones: this
/// very object, or one that shares its storage and geometry.
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

  /// The path of the parameter used last: where in the model we are.
  const std::string& place() const {
    return place_;
  }

  Trace& trace() {
    return trace_;
  }
  const Ledger& ledger() const {
    return ledger_;
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
  bool from_argument(const graph::Op& op) const;
  int32_t add_slot(const c10::IValue& value);
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
  std::vector<std::string> names_;
  std::vector<int32_t> argument_inputs_; ///< Graph inputs, or -1.
  FindWatched find_watched_;
  Trace trace_;
  Ledger ledger_;
  /// For storages made uninitialised by an op: that op, else -1.
  std::vector<int32_t> uninitialised_by_;
  GeneratorState generator_;
  std::string place_;
};

} // namespace temper::capture
