// How many threads ATen uses, set for a while.
#pragma once

#include <ATen/Parallel.h>

namespace temper::testing {

/// Puts back at its end what there was at its start.
class ThreadCount {
 public:
  ThreadCount() : count_(at::get_num_threads()) {}
  explicit ThreadCount(int count) : ThreadCount() {
    at::set_num_threads(count);
  }
  ~ThreadCount() {
    at::set_num_threads(count_);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int count_;
};

} // namespace temper::testing
