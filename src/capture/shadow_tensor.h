// Tensors without data, made for shadow runs.
//
// A shadow run makes a tensor an op and holds a weak reference to each, so that
// the memory of all goes back at its end: more than malloc keeps at hand. That
// memory is kept by thread instead. Likewise what LibTorch computes from
// strides (is the tensor contiguous, channels-last) is taken from the trace.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "capture/trace.h"

namespace temper::capture {

/// What reading a shadow tensor's data throws (as a c10::Error whose message
/// contains this).
extern const char* const kShadowDataMessage;

/// A storage whose data can't be read.
c10::Storage make_shadow_storage(size_t nbytes, c10::Device device);

/// A tensor as the trace has this value; `is_view`: as LibTorch makes views.
at::Tensor make_shadow_tensor(
    c10::Storage storage,
    const graph::Type& type,
    const ValueInfo& info,
    bool is_view);

/// True iff it was made so. If its run has diverged, it has data since.
bool is_shadow_tensor(const c10::TensorImpl& impl);

/// Which memory formats the tensor's strides are; for `ValueInfo::formats`.
uint8_t memory_formats(const c10::TensorImpl& impl);

} // namespace temper::capture
