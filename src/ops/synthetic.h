// temper's own operators: what graphs need and ATen has no operator for. They
// are real dispatcher operators, so that graphs can be printed, parsed and run
// like any other.
//
//  temper::wrapped_number(Scalar value) -> Tensor
//    A 0-dim CPU tensor with the wrapped-number flag: what `x * 2.0` makes of
//    its number. int64, double, complex128 or bool.
//  temper::literal(str hex, int[] size, ScalarType dtype) -> Tensor
//    A small constant: the bytes of a contiguous tensor, as hex digits.
//  temper::write_through(Tensor base, Tensor view, Tensor content) -> Tensor
//    `base` with the region that `view` sees replaced by `content`. `view` is
//    reached from `base` by view operators of the graph. Functional form only:
//    the re-inplace pass turns it into copies or into nothing.
//  temper::copy_memory(Tensor self, bool whole_storage) -> Tensor
//    A copy with the same sizes, strides and offset relations, also where the
//    tensor has gaps or overlaps, so that every view of it can be taken of the
//    copy. whole_storage: also what lies outside the tensor's extent, at the
//    same offset.
//  temper::expect_layout(Tensor self, SymInt[] size, SymInt[] stride, str
//  made_by)
//      -> ()
//    Throws `UnexpectedLayout` unless `self` has these. Recorded behind
//    operators of other libraries, whose results nothing is known of.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

#include "temper/error.h"

namespace at {
class Tensor;
}

namespace temper::ops {

c10::OperatorHandle wrapped_number();
c10::OperatorHandle literal();
c10::OperatorHandle write_through();
c10::OperatorHandle copy_memory();
c10::OperatorHandle expect_layout();

/// The sizes of an operator's result depend on data, which its schema does not
/// say: it has no tag.
class UnexpectedLayout : public Error {
 public:
  UnexpectedLayout(const std::string& made_by, const std::string& message)
      : Error(message), made_by_(made_by) {}
  /// Why a call that meets it is not compiled; names the operator.
  std::string reason() const {
    return made_by_ + " returns other sizes from call to call";
  }

 private:
  std::string made_by_;
};

bool is_write_through(const c10::OperatorHandle& op);

/// The `hex` operand of a literal with this content.
std::string literal_bytes(const at::Tensor& tensor);

} // namespace temper::ops
