// What the kernels on temper's key need.
#pragma once

#include "capture/interceptor.h"

namespace temper::capture {

/// The key that temper intercepts. In LibTorch 2.15 nothing else uses it.
inline constexpr c10::DispatchKey kKey = c10::DispatchKey::Fake;

/// The kernel of every op: gives it to the interceptor.
void intercept(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack);

} // namespace temper::capture
