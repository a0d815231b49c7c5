// The tensors that a shadow run passes to the user's code in the place of the
// call's arguments.
#pragma once

#include <torch/csrc/autograd/edge.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/object_state.h"
#include "capture/trace.h"

namespace temper::capture {

/// Shadows of a call's arguments: same metadata, version counter, gradient and
/// gradient edge, on storages whose data throws when it is read. The code may
/// do to a tensor what no operator shows (a hook, `requires_grad_()`,
/// `set_data`), and on a divergence it goes on with its shadows: what became of
/// them is given back to the call's own tensors.
class ShadowArguments {
 public:
  /// `trace` must outlive this.
  ShadowArguments(const Trace& trace, const std::vector<at::Tensor>& originals);

  const std::vector<at::Tensor>& originals() const {
    return originals_;
  }
  const std::vector<at::Tensor>& shadows() const {
    return shadows_;
  }
  /// The call's own tensor if `tensor` is a shadow, else `tensor`.
  at::Tensor original(const at::Tensor& tensor) const;

  /// What the code did to a shadow besides running operators ("adds a hook to
  /// argument 0"); empty if nothing. While nothing has been materialised. The
  /// `rewritten` arguments are to have another history.
  std::string change(const std::vector<int32_t>& rewritten) const;
  void drop_histories(const std::vector<int32_t>& rewritten);
  /// Index of an argument that somebody else holds; -1 if none.
  int32_t kept() const;

  /// The shadows' storages get the originals' memory.
  void share_memory();
  /// If `tensor` looks at this shadow's storage: moves it to the original's.
  void move_home(const at::Tensor& tensor, size_t argument) const;
  /// Gives to the originals what the code did to their shadows: metadata,
  /// history, gradient, hooks. Returns what could not be given; empty if
  /// nothing.
  std::string give_back();

 private:
  struct Start {
    size_t first = 0; ///< The first argument that is this tensor.
    at::Tensor shadow; ///< Undefined: the original is passed itself.
    c10::Storage storage; ///< The shadow's.
    int64_t offset = 0; ///< Likewise, in elements.
    bool requires_grad = false;
    torch::autograd::Edge history; ///< Invalid if there was none.
    ObjectState object;
  };

  void make_shadow(const at::Tensor& original, Start& start);
  static bool has_new_history(const Start& start);
  bool has_new_metadata(size_t argument) const;
  int64_t shift(size_t argument) const;
  static bool give_history(const Start& start, const at::Tensor& original);
  static void give_object(const Start& start, const at::Tensor& original);

  const Trace& trace_;
  std::vector<at::Tensor> originals_;
  std::vector<at::Tensor> shadows_;
  std::vector<Start> starts_; ///< As `originals_`.
  std::vector<c10::intrusive_ptr<torch::autograd::Node>> accumulators_;
};

} // namespace temper::capture
