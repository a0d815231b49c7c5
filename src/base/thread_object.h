// An object that each thread has of its own, and that may be used for as long
// as the thread runs.
#pragma once

#include <c10/macros/Macros.h>

#include <utility>

namespace temper::base {

/// `ThreadObject<T>::get()` is this thread's T, made at its first use and
/// deleted when the thread ends. What the thread destroys after that may still
/// call compiled code, as may the statics of the program: they get a new one,
/// which nobody deletes. (A `thread_local T` would be used after its end.)
template <class T>
class ThreadObject {
 public:
  static T& get() {
    if (C10_UNLIKELY(object_ == nullptr)) {
      make();
    }
    return *object_;
  }
  /// As `get`, but null once the thread's objects have been deleted: for what
  /// need not be kept then.
  static T* while_alive() {
    if (C10_UNLIKELY(object_ == nullptr && !ended_)) {
      make();
    }
    return object_;
  }

 private:
  struct AtExit {
    ~AtExit() {
      ended_ = true;
      delete std::exchange(object_, nullptr);
    }
  };
  C10_NOINLINE static void make() {
    object_ = new T();
    thread_local const AtExit at_exit;
    static_cast<void>(at_exit);
  }

  // A plain pointer has no end.
  static inline thread_local T* object_ = nullptr;
  static inline thread_local bool ended_ = false;
};

} // namespace temper::base
