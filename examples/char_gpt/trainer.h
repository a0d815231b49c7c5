// One model in training: weights, optimizer, random numbers, and what it cost.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "char_gpt/data.h"
#include "char_gpt/model.h"
#include "char_gpt/options.h"
#include "common/memory_meter.h"

namespace char_gpt {

/// One side of the comparison. Both begin with equal weights and draw the same
/// random numbers: each has a state of the default CPU generator of its own,
/// put in place around its steps. Everything else about the two is the same
/// code; one of them was told to `compile()`.
class Trainer {
 public:
  /// `name` is "eager" or "compiled".
  Trainer(
      std::string name,
      const Options& options,
      const GptConfig& config,
      bool compiled);

  /// One step of the optimizer; the loss goes to `losses`.
  void train(const Batch& batch, double rate);
  /// The mean loss over the batches goes to `validation`.
  void validate(const std::vector<Batch>& batches);

  const std::string& name() const {
    return name_;
  }
  bool compiled() const {
    return compiled_;
  }

  /// Seconds of a step once warm: the median of all but the first steps of
  /// this process. Nothing if there were too few.
  std::optional<double> step_seconds() const;
  /// What the first two steps took longer than two warm ones.
  std::optional<double> compile_seconds() const;
  /// Bytes live at the peak of a warm step beside the parameters, buffers and
  /// optimizer state.
  std::optional<int64_t> step_bytes() const;

  /// What a checkpoint holds of this side, to be written and read in place.
  Gpt model{nullptr};
  std::unique_ptr<torch::optim::AdamW> optimizer;
  torch::Tensor generator_state;
  std::vector<double> losses; ///< By step.
  std::vector<double> validation;

 private:
  examples::MemoryAccount memory_;
  std::string name_;
  bool compiled_;
  std::vector<double> seconds_; ///< Of the steps of this process.
  std::optional<int64_t> step_bytes_;
};

} // namespace char_gpt
