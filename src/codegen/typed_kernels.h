// The operators with typed kernels, by class; and the choice of a kernel.
#pragma once

#include <c10/util/ArrayRef.h>

#include "codegen/typed_kernel.h"

namespace temper::codegen {

// One file a class: typed_kernels_<class>.cpp.
c10::ArrayRef<KernelEntry> pointwise_kernels();
c10::ArrayRef<KernelEntry> pointwise_inplace_kernels();
c10::ArrayRef<KernelEntry> activation_kernels();
c10::ArrayRef<KernelEntry> view_kernels();
c10::ArrayRef<KernelEntry> factory_kernels();
c10::ArrayRef<KernelEntry> reduction_kernels();
c10::ArrayRef<KernelEntry> matmul_kernels();
c10::ArrayRef<KernelEntry> convolution_kernels();
c10::ArrayRef<KernelEntry> norm_kernels();
c10::ArrayRef<KernelEntry> loss_kernels();
c10::ArrayRef<KernelEntry> indexing_kernels();

/// The typed kernel of an operator, else the boxed call.
program::Kernel kernel_for(const c10::OperatorHandle& op);

} // namespace temper::codegen
