// The dispatcher fallback on `kKey`; unboxed_kernels.cpp has kernels beside it.
#include "capture/interceptor_kernel.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace temper::capture {
namespace {

thread_local Interceptor* current = nullptr;

// The key is not excluded for a while, within `intercept`.
class AllowKey {
 public:
  AllowKey() {
    c10::impl::tls_set_dispatch_key_excluded(kKey, false);
  }
  ~AllowKey() {
    c10::impl::tls_set_dispatch_key_excluded(kKey, true);
  }
  AllowKey(const AllowKey&) = delete;
  AllowKey& operator=(const AllowKey&) = delete;
};

} // namespace

Interceptor* current_interceptor() {
  return current;
}

void intercept(
    const c10::OperatorHandle& op,
    c10::DispatchKeySet keys,
    torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard exclude(kKey);
  const auto below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (current == nullptr) {
    op.redispatchBoxed(below, stack);
    return;
  }
  current->handle(op, below, stack);
}

void call_parts(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const AllowKey allow;
  op.callBoxedForDispatchKey(
      c10::DispatchKey::CompositeImplicitAutograd, *stack);
}

bool capturing() {
  // While an op is being handled the key is excluded, but the thread is still
  // inside a capture: a custom op's kernel may call a compiled module.
  return current != nullptr && c10::impl::tls_is_dispatch_key_included(kKey);
}

InterceptScope::InterceptScope(Interceptor& interceptor)
    : previous_(current),
      was_included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  begin_intercept(interceptor);
}

InterceptScope::~InterceptScope() {
  current = previous_;
  c10::impl::tls_set_dispatch_key_included(kKey, was_included_);
}

NoInterceptScope::NoInterceptScope()
    : was_included_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  c10::impl::tls_set_dispatch_key_included(kKey, false);
}

NoInterceptScope::~NoInterceptScope() {
  c10::impl::tls_set_dispatch_key_included(kKey, was_included_);
}

void begin_intercept(Interceptor& interceptor) {
  current = &interceptor;
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

void end_intercept() {
  current = nullptr;
  c10::impl::tls_set_dispatch_key_included(kKey, false);
}

} // namespace temper::capture

// NOLINTNEXTLINE: the macro makes a static registrar.
TORCH_LIBRARY_IMPL(_, Fake, m) {
  m.fallback(
      torch::CppFunction::makeFromBoxedFunction<&temper::capture::intercept>());
}
