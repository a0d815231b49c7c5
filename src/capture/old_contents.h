// What tensors contain before something that may have to be undone.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace temper::capture {

class OldContents {
 public:
  /// Copies what is in the memory that this tensor looks at.
  void keep(const at::Tensor& tensor);
  /// Puts it back, below autograd.
  void put_back() const;
  /// Sets the version counters back, too: as if nothing had been written.
  void put_back_with_versions() const;

 private:
  struct Kept {
    at::Tensor tensor;
    at::Tensor content;
    int64_t version; ///< -1: an inference tensor has none.
  };
  std::vector<Kept> kept_;
};

} // namespace temper::capture
