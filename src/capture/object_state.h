// What a tensor object carries that no operator shows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

namespace temper::capture {

/// Of one tensor at one moment: its memory, its gradient, hooks. A call that
/// changes them does something that a program would not.
struct ObjectState {
  const c10::StorageImpl* storage = nullptr;
  const c10::TensorImpl* grad = nullptr; ///< Null if undefined.
  size_t hooks = 0;
  bool retains_grad = false;

  static ObjectState of(const at::Tensor& tensor);
  /// What the call did, from this to `now`: "replaces the memory of", "adds a
  /// hook to", …; null if nothing. A gradient that has come is not a change:
  /// another thread's backward may have brought it, and one inside the call is
  /// seen by its operators.
  const char* change(const ObjectState& now) const;
};

} // namespace temper::capture
