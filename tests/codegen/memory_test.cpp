// When memory is freed, and that typed kernels are used.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "base/error.h"
#include "codegen/boxed_kernel.h"
#include "codegen/compile_aten.h"
#include "codegen/typed_kernels.h"
#include "graph/build.h"
#include "graph/skeleton.h"
#include "runtime/executor.h"
#include "support/raw_builder.h"
#include "support/run_artifact.h"

namespace temper::codegen {
namespace {

using support::num;
using support::RawBuilder;

// Counts the bytes that its tensors hold; wraps the CPU allocator.
class CountingAllocator final : public at::Allocator {
 public:
  CountingAllocator() : inner_(at::GetAllocator(at::kCPU)) {
    at::SetAllocator(at::kCPU, this, 255);
  }
  ~CountingAllocator() override {
    at::SetAllocator(at::kCPU, inner_, 255);
  }

  at::DataPtr allocate(size_t bytes) override {
    // A context of our own frees the inner pointer and counts back.
    auto* context = new Context{this, bytes, inner_->allocate(bytes)};
    held_ += bytes;
    peak_ = std::max(peak_, held_);
    return {context->data.get(), context, &free_context, at::kCPU};
  }
  at::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  void reset_peak() {
    peak_ = held_;
  }
  size_t held() const {
    return held_;
  }
  size_t peak() const {
    return peak_;
  }

 private:
  struct Context {
    CountingAllocator* owner;
    size_t bytes;
    at::DataPtr data;
  };
  static void free_context(void* pointer) {
    auto* context = static_cast<Context*>(pointer);
    context->owner->held_ -= context->bytes;
    delete context;
  }

  at::Allocator* inner_;
  size_t held_ = 0;
  size_t peak_ = 0;
};

TEST(Executor, FreesIntermediatesAtTheirLastUse) {
  constexpr int64_t kSize = 1 << 16;
  constexpr size_t kBytes = sizeof(float) * kSize;
  RawBuilder b;
  auto v = b.input(torch::ones({kSize}), "x");
  for (int i = 0; i < 10; ++i) {
    v = b.call1("aten::neg", {v});
  }
  b.output(v);
  const auto raw = b.graph();
  const auto artifact = compile_aten(raw);
  const auto slots = graph::skeleton(raw).slots;

  CountingAllocator allocator;
  {
    std::vector<at::Tensor> inputs = {torch::ones({kSize})};
    allocator.reset_peak();
    const size_t before = allocator.held();
    const auto outputs = runtime::run(
        *artifact->forward, std::move(inputs), slots.data(), nullptr);
    // The input, given away, and two neighbours of the chain at most.
    EXPECT_LE(allocator.peak() - before, kBytes * 3 / 2);
    EXPECT_EQ(allocator.held() - before, 0); // input freed, output made
  }
}

TEST(Executor, AThrowingOpPassesThroughAndFreesAll) {
  RawBuilder b;
  const auto vx = b.input(torch::ones({4, 3}), "x");
  const auto vy = b.input(torch::ones({3, 4}), "y");
  const auto z = b.call1("aten::neg", {vx});
  b.output(b.call1("aten::mm", {z, vy}));
  const auto raw = b.graph();
  const auto artifact = compile_aten(raw);
  const auto slots = graph::skeleton(raw).slots;
  CountingAllocator allocator;
  const size_t before = allocator.held();
  EXPECT_THROW(
      runtime::run(
          *artifact->forward,
          {torch::ones({4, 3}), torch::ones({4, 4})},
          slots.data(),
          nullptr),
      c10::Error);
  EXPECT_EQ(allocator.held(), before);
}

TEST(Kernels, CommonOperatorsAreTyped) {
  for (const char* name :
       {"aten::addmm",
        "aten::native_layer_norm_backward",
        "aten::convolution_backward",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::index.Tensor",
        "aten::bernoulli_.float",
        "aten::cat"}) {
    EXPECT_NE(kernel_for(graph::find_op(name)), &run_boxed) << name;
  }
  EXPECT_EQ(kernel_for(graph::find_op("aten::kthvalue")), &run_boxed);
}

} // namespace
} // namespace temper::codegen
