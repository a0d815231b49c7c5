// Accounts of the counting allocator.
#include "common/memory_meter.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace examples {
namespace {

constexpr int64_t kFloats = 1000;
constexpr int64_t kBytes = 4 * kFloats;

TEST(MemoryMeter, CountsLiveAndPeakBytes) {
  MemoryAccount account;
  const MemoryAccount::Use use(account);
  torch::Tensor kept = torch::empty(kFloats);
  {
    const torch::Tensor dropped = torch::empty(2 * kFloats);
    EXPECT_EQ(account.bytes(), 3 * kBytes);
  }
  EXPECT_EQ(account.bytes(), kBytes);
  EXPECT_EQ(account.peak_bytes(), 3 * kBytes);
  account.reset_peak();
  EXPECT_EQ(account.peak_bytes(), kBytes);
  kept.resize_(0);
  kept.resize_(2 * kFloats);
  EXPECT_EQ(account.bytes(), 2 * kBytes);
}

TEST(MemoryMeter, AnAllocationBelongsToTheAccountThatMadeIt) {
  MemoryAccount a;
  MemoryAccount b;
  torch::Tensor tensor;
  {
    const MemoryAccount::Use use(a);
    tensor = torch::empty(kFloats);
    {
      const MemoryAccount::Use inner(b);
      const torch::Tensor other = torch::empty(kFloats);
      EXPECT_EQ(b.bytes(), kBytes);
    }
    EXPECT_EQ(b.bytes(), 0);
  }
  const MemoryAccount::Use use(b);
  tensor.reset();
  EXPECT_EQ(a.bytes(), 0);
  EXPECT_EQ(b.bytes(), 0);
}

TEST(MemoryMeter, CountsNothingOutsideAnAccount) {
  MemoryAccount account;
  const torch::Tensor tensor = torch::empty(kFloats);
  EXPECT_EQ(account.bytes(), 0);
  EXPECT_EQ(torch::empty(0).data_ptr(), nullptr);
}

TEST(MemoryMeter, KeepsTheAlignment) {
  const MemoryAccount account;
  for (const int64_t n : {1, 3, 64, 1000, 1 << 20}) {
    const auto address =
        reinterpret_cast<uintptr_t>(torch::empty(n).data_ptr());
    EXPECT_EQ(address % c10::gAlignment, 0U) << n;
  }
}

TEST(MemoryMeter, AllocationsOutliveTheirAccount) {
  torch::Tensor tensor;
  {
    MemoryAccount account;
    const MemoryAccount::Use use(account);
    tensor = torch::ones(kFloats);
  }
  EXPECT_EQ(tensor.sum().item<float>(), kFloats);
}

} // namespace
} // namespace examples
