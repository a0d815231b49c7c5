// What operators allocate, to see that nothing is copied on the way.
#pragma once

#include <ATen/Context.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace temper::testing {

/// While it lives, counts what c10's CPU allocator hands out, on all threads.
class Allocations {
 public:
  Allocations() {
    counter().bytes = 0;
    counter().largest = 0;
    at::SetAllocator(at::kCPU, &counter(), kAboveDefault);
  }
  ~Allocations() {
    at::SetAllocator(at::kCPU, counter().inner, kAboveDefault);
  }
  Allocations(const Allocations&) = delete;
  Allocations& operator=(const Allocations&) = delete;

  /// All together, also of what has been freed.
  size_t bytes() const {
    return counter().bytes;
  }
  /// The largest at once.
  size_t largest() const {
    return counter().largest;
  }

 private:
  static constexpr uint8_t kAboveDefault = 255;

  // What it hands out is the inner allocator's and outlives the counting.
  struct Counter final : at::Allocator {
    at::DataPtr allocate(size_t n) override {
      bytes += n;
      size_t seen = largest;
      while (seen < n && !largest.compare_exchange_weak(seen, n)) {
      }
      return inner->allocate(n);
    }
    at::DeleterFnPtr raw_deleter() const override {
      return inner->raw_deleter();
    }
    void copy_data(void* to, const void* from, size_t n) const override {
      inner->copy_data(to, from, n);
    }
    at::Allocator* inner = at::GetAllocator(at::kCPU);
    std::atomic<size_t> bytes = 0;
    std::atomic<size_t> largest = 0;
  };
  static Counter& counter() {
    static Counter one;
    return one;
  }
};

} // namespace temper::testing
