// The shadow executor: runs the user's code on tensors without data and matches
// each op, operand and number against a trace, executing nothing.
//
// 1. Arguments are replaced by shadows: same metadata, version counter and
//    gradient edge, a storage whose data can't be read (reading throws).
// 2. An op that matches gives shadow results, views in the storage that they
//    look at. Only views of other libraries and sources of literals run for
//    real, so nothing changes but versions.
// 3. On a difference the call materialises: what was matched so far runs for
//    real, its memory goes into the storages that shadows share with views and
//    saved variables, and the call goes on eagerly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "capture/interceptor.h"
#include "capture/ledger.h"
#include "capture/recorder.h"
#include "capture/shadow_tensor.h"
#include "capture/trace.h"

namespace temper::capture {

class ShadowRun : public Interceptor {
 public:
  /// `trace` must outlive the run. `arguments` are the call's tensors.
  ShadowRun(
      const Trace& trace,
      const std::vector<at::Tensor>& arguments,
      FindWatched find_watched);
  ~ShadowRun() override;

  /// To be passed to the user's code in the place of the arguments.
  const std::vector<at::Tensor>& arguments() const {
    return shadows_;
  }

  void handle(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack) override;

  /// True iff nothing differed and every op of the trace was seen.
  bool complete() const;
  /// The first difference; empty if none.
  const std::string& divergence() const {
    return divergence_;
  }
  /// What a result of the user's code is; kNoValue if of unknown origin.
  graph::ValueId find(const at::Tensor& tensor) const;
  /// True iff `tensor` is this value; an undefined one is kNoValue, one of
  /// unknown origin nothing.
  bool is(const at::Tensor& tensor, graph::ValueId value) const;
  /// The call's own tensor if `tensor` is the shadow of an argument, else
  /// `tensor`.
  at::Tensor original(const at::Tensor& tensor) const;
  /// Values of shadow tensors that are still alive.
  std::vector<graph::ValueId> alive_values() const {
    return ledger_.alive_values();
  }

  /// Runs what was matched so far for real; from then on every shadow has data
  /// and ops run eagerly. `why` becomes the divergence.
  void materialise(const std::string& why);
  bool materialised() const {
    return materialised_;
  }
  /// Undoes the effects of a complete run (version counters).
  void restore();

 private:
  bool match(
      const OpInfo& info,
      const c10::OperatorHandle& op,
      const c10::IValue* arguments,
      std::string* why);
  bool match_tensor(
      const at::Tensor& tensor,
      graph::ValueId expected,
      std::string* why);
  bool match_operand(
      const c10::IValue& argument,
      const graph::Operand& operand,
      std::string* why);
  bool match_synthetic(
      const at::Tensor& tensor,
      size_t op_index,
      std::string* why);
  const OpInfo& info_of(const c10::OperatorHandle& op) const;
  const at::Tensor* viewed(size_t index, const c10::IValue* arguments) const;
  at::Tensor make_result(
      const graph::Op& op,
      const c10::IValue* arguments,
      const at::Tensor* viewed,
      graph::ValueId id);
  void give_shadows(
      const graph::Op& op,
      const c10::OperatorHandle& handle,
      const at::Tensor* viewed,
      torch::jit::Stack* stack);
  void bind_results(
      const graph::Op& op,
      const c10::OperatorHandle& handle,
      const torch::jit::Stack& stack);
  at::Tensor input_tensor(int32_t input) const;
  int64_t byte_shift(size_t argument) const;
  void execute(size_t op_index, std::vector<at::Tensor>& values);
  void adopt(
      const at::Tensor& real,
      graph::ValueId value,
      std::vector<at::Tensor>& values);

  const Trace& trace_;
  std::vector<at::Tensor> originals_;
  std::vector<at::Tensor> shadows_;
  std::vector<int64_t> offsets_; ///< Of the shadows, in elements.
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;
  FindWatched find_watched_;
  Ledger ledger_;
  size_t num_ops_; ///< Of the trace's forward part.
  std::vector<int32_t> producer_; ///< By value: synthetic op, or -1.
  std::vector<std::pair<at::Tensor, int64_t>> versions_; ///< To restore.
  size_t next_ = 0; ///< The op of the trace expected next.
  size_t synthetic_from_ = 0; ///< Synthetic ops before `next_`.
  bool materialised_ = false;
  std::string divergence_;
};

/// Calls one op of a raw graph on `values` (by ValueId) through the dispatcher
/// as the thread's state has it; returns its results, flattened.
std::vector<at::Tensor> call_raw_op(
    const graph::Graph& graph,
    const graph::Op& op,
    const std::vector<at::Tensor>& values);

/// Runs one op of a raw graph on real tensors, below autograd: `values` by
/// ValueId (operands must be there); returns its results, flattened.
std::vector<at::Tensor> run_raw_op(
    const graph::Graph& graph,
    const graph::Op& op,
    const std::vector<at::Tensor>& values);

} // namespace temper::capture
