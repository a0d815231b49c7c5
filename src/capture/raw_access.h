// Notices that code under capture looks at tensors' memory past operators
// (`data_ptr<T>()`, accessors, Eigen maps) by the hook that LibTorch's storages
// have for writable access. Read-only access (`const_data_ptr`) has none: it is
// found by shadow runs.
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <thread>
#include <unordered_map>

namespace temper::capture {

/// The reason that calls with such access get.
extern const char* const kRawAccess;

/// Of one recorder, whose storages it watches. The hook is a plain pointer in
/// the storage, which LibTorch reads and clears without a lock: watch nothing
/// that other threads write to.
class RawAccess {
 public:
  RawAccess() = default;
  ~RawAccess();
  RawAccess(const RawAccess&) = delete;
  RawAccess& operator=(const RawAccess&) = delete;

  using Storage = c10::intrusive_ptr<c10::StorageImpl>;
  /// Watches these from now on. Again after each operator that may have used
  /// them: the hook works once.
  void watch(c10::ArrayRef<Storage> storages);
  /// No longer: its tensors are the user's again.
  void release(c10::StorageImpl* storage);
  void release_all();

  /// The user's code runs on this thread, until `pause`.
  void resume();
  void pause();

  /// An operator runs, which may use all memory: one of LibTorch's on this
  /// thread and on those of LibTorch's pool, another library's (`foreign`) on
  /// any. Nests.
  class InOperator {
   public:
    InOperator(RawAccess& raw, bool foreign)
        : count_(foreign ? raw.foreign_operators_ : raw.operators_) {
      count_.fetch_add(1, std::memory_order_relaxed);
    }
    ~InOperator() {
      count_.fetch_sub(1, std::memory_order_relaxed);
    }
    InOperator(const InOperator&) = delete;
    InOperator& operator=(const InOperator&) = delete;

   private:
    std::atomic<int>& count_;
  };

  /// True iff the thread that runs the user's code has looked.
  bool seen() const {
    return seen_.load(std::memory_order_relaxed);
  }
  /// True iff another thread has: one that the code has started, or one that
  /// uses the same arguments.
  bool seen_elsewhere() const {
    return seen_elsewhere_.load(std::memory_order_relaxed);
  }

 private:
  static void on_access(c10::StorageImpl* storage);
  void unregister(c10::StorageImpl* storage);

  /// Weak references keep the addresses from being used again.
  std::unordered_map<
      c10::StorageImpl*,
      c10::weak_intrusive_ptr<c10::StorageImpl>>
      watched_;
  std::atomic<std::thread::id>
      thread_; ///< Where the user's code runs, if it does.
  std::atomic<bool> running_{false};
  std::atomic<int> operators_{0};
  std::atomic<int> foreign_operators_{0};
  std::atomic<bool> seen_{false};
  std::atomic<bool> seen_elsewhere_{false};
};

} // namespace temper::capture
