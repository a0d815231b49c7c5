// The one place where temper meets the dispatcher: kernels on the key below
// Autograd, Autocast and Functionalize, and who listens to them.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DispatchKeySet.h>

#include <span>

namespace temper::capture {

class ArgumentRef;

/// Handles every op that a thread calls while an `InterceptScope` is alive.
class Interceptor {
 public:
  virtual ~Interceptor() = default;
  /// Handles one op: `stack` holds its arguments and must hold its results
  /// afterwards. Ops called from here are not intercepted. `below` are the keys
  /// to redispatch with.
  virtual void handle(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack) = 0;
  /// Asked first, of an op that has a kernel of its own: gives the op's results
  /// and returns true, or changes nothing. May not call any op.
  virtual bool handle_unboxed(
      const c10::OperatorHandle& op,
      std::span<const ArgumentRef> arguments,
      std::span<at::Tensor> results) {
    static_cast<void>(op);
    static_cast<void>(arguments);
    static_cast<void>(results);
    return false;
  }
};

/// For `Interceptor::handle`: runs a composite op as its parts, each of which
/// is intercepted.
void call_parts(const c10::OperatorHandle& op, torch::jit::Stack* stack);

/// What this thread's ops go to; null if they are not intercepted.
Interceptor* current_interceptor();

/// True iff this thread's ops are being captured (so that a compiled module
/// called now is part of that capture).
bool capturing();

/// Turns interception on for this thread, and restores what was before.
class InterceptScope {
 public:
  explicit InterceptScope(Interceptor& interceptor);
  ~InterceptScope();
  InterceptScope(const InterceptScope&) = delete;
  InterceptScope& operator=(const InterceptScope&) = delete;

 private:
  Interceptor* previous_;
  bool was_included_;
};

/// Turns interception off for this thread (for temper's own ops).
class NoInterceptScope {
 public:
  NoInterceptScope();
  ~NoInterceptScope();
  NoInterceptScope(const NoInterceptScope&) = delete;
  NoInterceptScope& operator=(const NoInterceptScope&) = delete;

 private:
  bool was_included_;
};

/// The two halves of an `InterceptScope`, for hooks that can't hold one. The
/// engine restores the key itself when a node throws between them.
void begin_intercept(Interceptor& interceptor);
void end_intercept();

} // namespace temper::capture
