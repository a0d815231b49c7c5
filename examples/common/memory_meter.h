// Counts the bytes that c10's CPU allocator has handed out, by account.
#pragma once

#include <cstddef>
#include <cstdint>

namespace examples {

struct MemoryBooks;

/// What one party of a program has allocated and not freed yet, and the most
/// there was of it at once. An allocation belongs to the account in use when
/// it was made, whoever frees it and when: a cache that one party fills and
/// keeps goes on counting for that party. Threads: one account is in use at a
/// time in the whole process, since an operator may allocate on its workers.
class MemoryAccount {
 public:
  /// Installs the counting allocator with the first account. Tensors from
  /// before that are not counted.
  MemoryAccount();
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  /// Bytes allocated for this account and not freed.
  int64_t bytes() const;
  /// The most of `bytes()` since construction or the last `reset_peak()`.
  int64_t peak_bytes() const;
  /// Makes `peak_bytes()` start again at `bytes()`.
  void reset_peak();

  /// Puts an account in use for a scope.
  class Use {
   public:
    explicit Use(MemoryAccount& account);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    MemoryBooks* previous_;
  };

 private:
  MemoryBooks* books_; ///< Never freed: an allocation may outlive the account.
};

} // namespace examples
