// Builds raw graphs by running operators, and runs raw graphs: the reference
// that compiled programs are compared with.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace temper::support {

/// An argument of `RawBuilder::call`: a value, a list of values, or an IValue
/// that becomes a slot or a constant as the schema says.
struct Arg {
  Arg(graph::ValueId id) : kind(Kind::kValue), values{id} {}
  Arg(std::vector<graph::ValueId> list)
      : kind(Kind::kList), values(std::move(list)) {}
  Arg(c10::IValue number) : kind(Kind::kScalar), scalar(std::move(number)) {}

  enum class Kind { kValue, kList, kScalar } kind;
  std::vector<graph::ValueId> values;
  c10::IValue scalar;
};

inline Arg none() {
  return {c10::IValue()};
}
inline Arg num(int64_t n) {
  return {c10::IValue(n)};
}
inline Arg num(double x) {
  return {c10::IValue(x)};
}
inline Arg flag(bool b) {
  return {c10::IValue(b)};
}
inline Arg ints(std::vector<int64_t> list) {
  return {c10::IValue(std::move(list))};
}

/// Runs operators on real tensors and writes down what a recorder would.
/// Tensors stay alive, so that storages are told apart by address.
class RawBuilder {
 public:
  graph::ValueId input(
      const at::Tensor& tensor,
      const std::string& name,
      graph::Role role = graph::Role::kArgument);

  /// Appends an op; missing arguments take the schema's defaults. The results,
  /// flattened. Exceptions of the operator leave the graph unchanged.
  std::vector<graph::ValueId> call(
      std::string_view name,
      const std::vector<Arg>& args);
  /// Of an operator with one result.
  graph::ValueId call1(std::string_view name, const std::vector<Arg>& args) {
    return call(name, args).at(0);
  }

  void output(graph::ValueId value);
  /// Ends the forward part; lists the inputs that were written.
  void end_forward();
  /// A tangent for an output; it enters with the next segment.
  graph::ValueId tangent(int32_t output, const at::Tensor& value);
  void begin_segment(std::vector<graph::ValueId> tangents);
  void deliver(graph::ValueId value, int32_t input = 0);
  void end_segment();

  const at::Tensor& tensor(graph::ValueId value) const {
    return tensors_.at(static_cast<size_t>(value));
  }
  /// The graph; ends the forward part if that was not done.
  graph::Graph graph();
  /// Makes the caller write this input's final content.
  void mutate_as_output(int32_t input);

 private:
  graph::ValueId value_of(const at::Tensor& tensor);
  graph::Type type_of(const at::Tensor& tensor) const;

  graph::Graph graph_;
  std::vector<at::Tensor> tensors_; // by value
  std::unordered_map<const void*, graph::ValueId> values_; // by TensorImpl
  std::unordered_map<const void*, int32_t> storages_; // by StorageImpl
  std::vector<bool> written_; // by input
  std::vector<int32_t> as_output_;
  bool forward_ended_ = false;
};

/// What a run gave: tensors as they are at the end of the forward, and at the
/// end of each segment.
struct RunResult {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> output_contents; ///< Copies of that moment.
  std::vector<at::Tensor> input_contents; ///< Of all non-tangent inputs.
  /// Of all inputs: whether an op writes to its memory. Reference runs only.
  std::vector<bool> written_inputs;
  std::vector<std::vector<at::Tensor>> deliveries; ///< By segment.
  std::vector<std::vector<at::Tensor>> delivery_contents;
};

/// Runs the ops of a raw graph one after the other. `inputs` in the order of
/// the graph, tangents included; they are written as the graph says.
RunResult run_raw(
    const graph::Graph& raw,
    const std::vector<at::Tensor>& inputs,
    const std::vector<c10::IValue>& objects = {});

/// Same dtype, sizes, strides and bits.
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// A copy that keeps strides.
at::Tensor snapshot(const at::Tensor& tensor);

/// Copies of tensors that share memory as they do, with the same strides.
std::vector<at::Tensor> copy_inputs(const std::vector<at::Tensor>& inputs);

} // namespace temper::support
