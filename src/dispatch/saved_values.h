// What the backwards of one compiled call read of its forward.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <vector>

#include "dispatch/plan.h"

namespace temper::dispatch {

class SavedValues {
 public:
  SavedValues() = default;
  /// `outputs` are the graph's, before they get a history; `private_values` are
  /// the forward program's other results.
  SavedValues(
      const Plan& plan,
      const std::vector<at::Tensor>& arguments,
      const std::vector<at::Tensor>& outputs,
      std::vector<at::Tensor> private_values);

  /// The recorded backward `run` begins. `consumed`: the autograd nodes of the
  /// call that have run once it has, or null where its graph is retained. A
  /// value goes with its last reader, unless another backward can still come.
  void begin(const Plan& plan, int32_t run, const std::vector<bool>* consumed);

  /// A value that a node of this backward reads. Throws as eager does if it has
  /// gone, or has been changed in place.
  at::Tensor take(const Chain::Run& run, int32_t saved, int32_t node);

 private:
  // All by saved index.
  std::vector<at::Tensor> private_;
  /// Tensors that the user can reach.
  std::vector<torch::autograd::SavedVariable> external_;
  std::vector<bool> is_external_;
  std::vector<bool> kept_; ///< Another backward may read it.
};

} // namespace temper::dispatch
