// Copies of memory, and how they go back.
#include "capture/old_contents.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

namespace temper::capture {

void OldContents::keep(const at::Tensor& tensor) {
  const at::AutoDispatchBelowADInplaceOrView below;
  auto content = tensor.clone();
  kept_.push_back(
      {tensor,
       std::move(content),
       tensor.is_inference() ? -1 : tensor._version()});
}

void OldContents::put_back() const {
  const at::AutoDispatchBelowADInplaceOrView below;
  for (const auto& kept : kept_) {
    kept.tensor.copy_(kept.content);
  }
}

void OldContents::put_back_with_versions() const {
  put_back();
  for (const auto& kept : kept_) {
    if (kept.version >= 0) {
      // A copy shares the counter.
      auto counter = kept.tensor.unsafeGetTensorImpl()->version_counter();
      counter.set_version(kept.version);
    }
  }
}

} // namespace temper::capture
