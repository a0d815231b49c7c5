// What a run of some code showed, in a form that two runs can be compared by.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/UndefinedTensorImpl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace temper::testing {

/// How far values may differ: not at all, unless a test says so and why.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

/// One thing that was seen. `facts` is all but the values, as a line of text:
/// "float32 [2, 3] strides [3, 1] …".
struct Observation {
  std::string name;
  std::string facts;
  at::Tensor values; ///< A contiguous copy; undefined if it was no tensor.
};

/// The first difference of two observations, with index and both values; none
/// if they are equal. NaN equals NaN, 0.0 and -0.0 differ.
std::optional<std::string> difference(
    const Observation& expected,
    const Observation& actual,
    Tolerance tolerance);

/// A list of observations. Tensors and storages are numbered in the order in
/// which they were first seen, and the numbers are part of the facts: so two
/// transcripts are equal only if the same tensors share memory in both.
class Transcript {
 public:
  void add(std::string name, const at::Tensor& tensor);
  void add_text(std::string name, std::string text);

  const std::vector<Observation>& observations() const {
    return observations_;
  }

 private:
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  size_t number_of_tensor(const at::Tensor& tensor);
  size_t number_of_storage(const at::Tensor& tensor);

  std::vector<Observation> observations_;
  // Weak, so that memory is freed when it would be freed without a test, and
  // no address is used twice.
  std::vector<WeakTensor> tensors_;
  std::vector<WeakStorage> storages_;
};

} // namespace temper::testing
