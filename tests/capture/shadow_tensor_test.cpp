// Shadow tensors look as LibTorch would have made them, and have no data.
#include "capture/shadow_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>
#include <vector>

namespace temper::capture {
namespace {

graph::Type type_of(const at::Tensor& tensor) {
  graph::Type type;
  type.dtype = tensor.scalar_type();
  type.device = tensor.device();
  type.strides = tensor.strides().vec();
  for (const auto size : tensor.sizes()) {
    type.sizes.push_back({graph::Dim::Kind::kAny, -1, size});
  }
  return type;
}

ValueInfo info_of(const at::Tensor& tensor) {
  return {
      tensor.storage_offset(),
      0,
      tensor.key_set(),
      memory_formats(*tensor.unsafeGetTensorImpl())};
}

at::Tensor shadow_of(const at::Tensor& tensor, bool is_view = false) {
  return make_shadow_tensor(
      make_shadow_storage(tensor.storage().nbytes(), tensor.device()),
      type_of(tensor),
      info_of(tensor),
      is_view);
}

// Contiguous, channels-last in 2d and 3d, both at once, transposed, expanded,
// with gaps, empty, with dimensions of size 1, of no dimension, of many.
std::vector<at::Tensor> layouts() {
  const auto four = torch::zeros({2, 3, 4, 5});
  const auto five = torch::zeros({2, 3, 4, 5, 6});
  return {
      torch::zeros({}),
      torch::zeros({0}),
      torch::zeros({3}),
      torch::zeros({3, 4}),
      torch::zeros({3, 4}).t(),
      torch::zeros({3, 4}).slice(1, 1, 3),
      torch::zeros({3, 1}).expand({3, 4}),
      torch::zeros({1, 1, 1}),
      four,
      four.transpose(1, 3),
      four.contiguous(at::MemoryFormat::ChannelsLast),
      four.contiguous(at::MemoryFormat::ChannelsLast).slice(0, 1, 2),
      torch::zeros({2, 1, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast),
      torch::zeros({2, 3, 0, 5}),
      five,
      five.contiguous(at::MemoryFormat::ChannelsLast3d),
      five.contiguous(at::MemoryFormat::ChannelsLast3d).select(2, 1),
      torch::zeros({1, 1, 1, 1, 1}),
      torch::zeros({1, 2, 1, 2, 1, 2, 1}).permute({6, 0, 5, 1, 4, 2, 3}),
  };
}

TEST(ShadowTensorTest, LooksAsTheTensorDid) {
  for (const auto& real : layouts()) {
    for (const bool is_view : {false, true}) {
      const auto shadow = shadow_of(real, is_view);
      const auto& impl = *shadow.unsafeGetTensorImpl();
      EXPECT_EQ(shadow.sizes(), real.sizes());
      EXPECT_EQ(shadow.strides(), real.strides()) << real.sizes();
      EXPECT_EQ(shadow.numel(), real.numel()) << real.sizes();
      EXPECT_EQ(shadow.storage_offset(), real.storage_offset());
      EXPECT_EQ(shadow.key_set(), real.key_set());
      EXPECT_EQ(shadow.scalar_type(), real.scalar_type());
      EXPECT_EQ(
          memory_formats(impl), memory_formats(*real.unsafeGetTensorImpl()))
          << real.sizes() << real.strides();
      EXPECT_EQ(shadow.suggest_memory_format(), real.suggest_memory_format());
      // What LibTorch itself finds out from the strides.
      const auto formats = memory_formats(impl);
      shadow.unsafeGetTensorImpl()->set_sizes_and_strides(
          real.sizes(), real.strides());
      EXPECT_EQ(memory_formats(impl), formats)
          << real.sizes() << real.strides();
    }
  }
}

TEST(ShadowTensorTest, ItsDataCanNotBeRead) {
  const auto shadow = shadow_of(torch::ones({2, 3}));
  try {
    static_cast<void>(shadow.const_data_ptr<float>());
    ADD_FAILURE();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr(kShadowDataMessage));
  }
  EXPECT_ANY_THROW(shadow.item());
}

// Memory goes back to whichever thread lets go, also at its very end.
TEST(ShadowTensorTest, MayDieInAnyThreadAndAfterItsOwn) {
  std::vector<at::Tensor> kept;
  const auto make = [&] {
    kept.resize(500);
    for (int64_t i = 0; i < 1000; ++i) {
      kept.push_back(shadow_of(torch::ones({i % 7})));
    }
    for (int64_t i = 0; i < 1000; ++i) {
      ASSERT_EQ(kept[static_cast<size_t>(500 + i)].numel(), i % 7);
    }
  };
  std::thread(make).join();
  kept.clear();
  make();
  std::thread([&] {
    thread_local std::vector<at::Tensor> late;
    make();
    late = std::move(kept);
  }).join();
}

} // namespace
} // namespace temper::capture
