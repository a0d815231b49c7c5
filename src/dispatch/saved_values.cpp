// What the backwards of one compiled call read of its forward.
#include "dispatch/saved_values.h"

#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace temper::dispatch {

using torch::autograd::SavedVariable;

// External tensors go through SavedVariable, whose version check raises eager's
// error; a detached alias spares the cycle output -> node -> output and shares
// the version counter.
SavedValues::SavedValues(
    const Plan& plan,
    const std::vector<at::Tensor>& arguments,
    const std::vector<at::Tensor>& outputs,
    std::vector<at::Tensor> private_values) {
  const auto& artifact = *plan.artifact;
  private_.resize(artifact.saved.size());
  external_.resize(artifact.saved.size());
  is_external_.resize(artifact.saved.size());
  for (size_t s = 0; s < artifact.saved.size(); ++s) {
    const auto& saved = artifact.saved[s];
    const auto index = static_cast<size_t>(saved.index);
    using Kind = runtime::Saved::Kind;
    if (saved.kind == Kind::kInput) {
      const auto input = input_tensor(plan, saved.index, arguments);
      // A leaf itself, as eager does; but not one that gets a history which
      // leads here. SavedVariable would keep other histories as well, past the
      // engine's care in freeing long ones.
      const bool itself = !saved.only_views && input.is_leaf() &&
          !plan.is_rewritten(saved.index);
      external_[s] = SavedVariable(
          itself ? input : capture::memory_of(input), /*is_output=*/false);
    } else if (saved.kind == Kind::kOutput) {
      external_[s] =
          SavedVariable(outputs[index].detach(), /*is_output=*/false);
    } else {
      auto& value =
          private_values[index - static_cast<size_t>(artifact.num_outputs)];
      if (saved.shares_output < 0) {
        private_[s] = std::move(value);
        continue;
      }
      value.unsafeGetTensorImpl()->set_version_counter(
          outputs[static_cast<size_t>(saved.shares_output)]
              .unsafeGetTensorImpl()
              ->version_counter());
      external_[s] = SavedVariable(value, /*is_output=*/false);
    }
    is_external_[s] = true;
  }
}

void SavedValues::begin(
    const Plan& plan,
    int32_t run,
    const std::vector<bool>* consumed) {
  kept_.assign(private_.size(), consumed == nullptr);
  for (size_t b = 0; b < plan.backwards.size() && consumed != nullptr; ++b) {
    const auto& readers = plan.readers[b];
    bool may_come = static_cast<int32_t>(b) != run;
    for (size_t n = 0; n < readers.size() && may_come; ++n) {
      may_come = !readers[n] || !(*consumed)[n];
    }
    for (size_t s = 0; s < kept_.size() && may_come; ++s) {
      if (plan.chain.runs[b].last_reader[s] >= 0) {
        kept_[s] = true;
      }
    }
  }
}

at::Tensor SavedValues::take(
    const Chain::Run& run,
    int32_t saved,
    int32_t node) {
  const auto index = static_cast<size_t>(saved);
  const bool last = !kept_[index] && run.last_reader[index] == node;
  if (is_external_[index]) {
    auto tensor = external_[index].unpack();
    if (last) {
      external_[index].reset_data();
    }
    return tensor;
  }
  TORCH_CHECK(private_[index].defined(), torch::autograd::ERR_BACKWARD_TWICE);
  return last ? std::move(private_[index]) : private_[index];
}

} // namespace temper::dispatch
