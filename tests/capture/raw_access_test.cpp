// Access to memory past operators: who is told of it, and when.
#include "capture/raw_access.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace temper::capture {
namespace {

c10::intrusive_ptr<c10::StorageImpl> storage_of(const at::Tensor& tensor) {
  return c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
      tensor.storage().unsafeGetStorageImpl());
}

TEST(RawAccess, IsNoticedOutsideOfOperatorsOnly) {
  auto x = torch::zeros({2});
  RawAccess raw;
  raw.watch({storage_of(x)});
  x.data_ptr<float>(); // The code does not run yet.
  raw.watch({storage_of(x)});
  raw.resume();
  {
    const RawAccess::InOperator in(raw, /*foreign=*/false);
    x.data_ptr<float>();
  }
  EXPECT_FALSE(raw.seen());
  raw.watch({storage_of(x)}); // The hook works once.
  x.const_data_ptr<float>();
  EXPECT_FALSE(raw.seen());
  x.accessor<float, 1>();
  EXPECT_TRUE(raw.seen());
  EXPECT_FALSE(raw.seen_elsewhere());
}

TEST(RawAccess, OfAnotherThreadIsToldApart) {
  auto x = torch::zeros({2});
  RawAccess raw;
  raw.watch({storage_of(x)});
  raw.resume();
  std::thread([&] { x.data_ptr<float>()[0] = 1; }).join();
  EXPECT_FALSE(raw.seen());
  EXPECT_TRUE(raw.seen_elsewhere());
}

TEST(RawAccess, TwoCanWatchOneStorage) {
  auto x = torch::zeros({2});
  RawAccess first;
  first.resume();
  {
    RawAccess second;
    second.resume();
    first.watch({storage_of(x)});
    second.watch({storage_of(x)});
    x.data_ptr<float>();
    // A hook that is there already is not another's.
    EXPECT_TRUE(first.seen());
    EXPECT_TRUE(second.seen());
    first.watch({storage_of(x)});
  }
  EXPECT_TRUE(storage_of(x)->has_materializer());
  first.release(storage_of(x).get());
  EXPECT_FALSE(storage_of(x)->has_materializer());
}

TEST(RawAccess, LeavesLazyCopiesAlone) {
  auto x = torch::ones({2});
  auto copy = at::_lazy_clone(x);
  {
    RawAccess raw;
    raw.watch({storage_of(x)});
  }
  EXPECT_TRUE(storage_of(x)->has_materializer());
  x.add_(1);
  EXPECT_EQ(copy[0].item<float>(), 1);
}

TEST(RawAccess, LeavesNothingBehind) {
  auto x = torch::zeros({2});
  {
    RawAccess raw;
    raw.watch({storage_of(x)});
    raw.watch({storage_of(torch::zeros({3}))}); // Dies first.
    EXPECT_TRUE(storage_of(x)->has_materializer());
  }
  EXPECT_FALSE(storage_of(x)->has_materializer());
}

} // namespace
} // namespace temper::capture
