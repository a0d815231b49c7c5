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

#include <c10/util/SmallVector.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/argument_ref.h"
#include "capture/generator_state.h"
#include "capture/interceptor.h"
#include "capture/ledger.h"
#include "capture/recorder.h"
#include "capture/shadow_arguments.h"
#include "capture/shadow_tensor.h"
#include "capture/trace.h"

namespace temper::capture {

class ShadowRun : public Interceptor {
 public:
  /// `trace` must outlive the run. `arguments` are the call's tensors.
  ShadowRun(const Trace& trace, const std::vector<at::Tensor>& arguments);
  ~ShadowRun() override;

  /// To be passed to the user's code in the place of the arguments.
  const std::vector<at::Tensor>& arguments() const {
    return arguments_.shadows();
  }

  void handle(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack) override;
  bool handle_unboxed(
      const c10::OperatorHandle& op,
      std::span<const ArgumentRef> arguments,
      std::span<at::Tensor> results) override;

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
  at::Tensor original(const at::Tensor& tensor) const {
    return arguments_.original(tensor);
  }
  /// What the code did to a tensor besides running operators ("the call adds a
  /// hook to 'weight'"); empty if nothing. Of a run that is complete. The
  /// `rewritten` arguments are to have another history.
  std::string object_change(const std::vector<int32_t>& rewritten) const;
  /// Lets go of the histories that these arguments' shadows were given.
  void drop_histories(const std::vector<int32_t>& rewritten) {
    arguments_.drop_histories(rewritten);
  }
  /// Values of shadow tensors that are still alive, beside the arguments.
  std::vector<graph::ValueId> alive_values() const {
    return ledger_.alive_values();
  }
  /// An argument of which somebody else holds the shadow, or -1.
  int32_t kept_argument() const {
    return arguments_.kept();
  }

  /// Runs what was matched so far for real; from then on every shadow has data
  /// and ops run eagerly. `why` becomes the divergence. False if that does not
  /// give what the code has been told: see `refused`.
  bool materialise(const std::string& why);
  bool materialised() const {
    return materialised_;
  }
  /// Why the code has to start again, on the arguments as they were: an
  /// operator of another library returned other sizes than in the trace, or
  /// `generator_touched`. Every further op throws. Empty if it has not.
  const std::string& refused() const {
    return refused_;
  }
  /// True iff `refused` is for `generator_touched`.
  bool refused_for_generator() const {
    return refused_for_generator_;
  }
  /// True iff somebody seeded or drew from the default generator behind
  /// operators, which may have drawn before that: they have not run yet.
  bool generator_touched() const;
  /// After a materialised run: see `ShadowArguments::give_back`.
  std::string give_back() {
    return arguments_.give_back();
  }
  /// Undoes the effects of a complete run (version counters).
  void restore();

 private:
  /// By argument; null for what is no tensor.
  using Tensors = c10::SmallVector<const at::Tensor*, 8>;

  /// The ops that the trace has next, up to the one that is no constant.
  void pass_synthetic();
  bool match(
      const OpInfo& info,
      const c10::OperatorHandle& op,
      const c10::IValue* arguments,
      std::string* why);
  /// The following set `why`, which means something only if they return false.
  bool match_operand(
      const ArgumentRef& argument,
      const graph::Operand& operand,
      const char** why);
  bool match_tensor(
      const at::Tensor& tensor,
      graph::ValueId expected,
      const char** why);
  bool match_synthetic(
      const at::Tensor& tensor,
      size_t op_index,
      const char** why);
  void skip_checks();
  const OpInfo& info_of(const c10::OperatorHandle& op) const;
  const at::Tensor* viewed(size_t index, const Tensors& tensors) const;
  bool has_to_run(size_t index, const at::Tensor* viewed) const;
  at::Tensor make_result(
      const graph::Op& op,
      const Tensors& tensors,
      const at::Tensor* viewed,
      graph::ValueId id);
  void give_shadows(
      const graph::Op& op,
      const OpInfo& info,
      const Tensors& tensors,
      const at::Tensor* viewed,
      torch::jit::Stack* stack);
  void bind_results(
      const graph::Op& op,
      const c10::OperatorHandle& handle,
      const torch::jit::Stack& stack);
  void execute(size_t op_index, std::vector<at::Tensor>& values);
  void adopt(
      const at::Tensor& real,
      graph::ValueId value,
      std::vector<at::Tensor>& values);

  const Trace& trace_;
  ShadowArguments arguments_;
  Ledger ledger_;
  std::optional<GeneratorState> generator_; ///< At the start, if ops draw.
  size_t num_ops_; ///< Of the trace's forward part.
  std::vector<std::pair<at::Tensor, int64_t>> versions_; ///< To restore.
  std::vector<ObjectState> inputs_; ///< Of watched graph inputs, at the start.
  size_t next_ = 0; ///< The op of the trace expected next.
  size_t synthetic_from_ = 0; ///< Synthetic ops before `next_`.
  bool materialised_ = false;
  std::string divergence_;
  std::string refused_;
  bool refused_for_generator_ = false;
};

} // namespace temper::capture
