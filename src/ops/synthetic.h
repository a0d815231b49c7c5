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
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace at {
class Tensor;
}

namespace temper::ops {

c10::OperatorHandle wrapped_number();
c10::OperatorHandle literal();
c10::OperatorHandle write_through();
c10::OperatorHandle copy_memory();

bool is_write_through(const c10::OperatorHandle& op);

/// The `hex` operand of a literal with this content.
std::string literal_bytes(const at::Tensor& tensor);

} // namespace temper::ops
