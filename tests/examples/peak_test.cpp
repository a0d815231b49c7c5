// A compiled training step needs no more memory at its peak than an eager one.
#include <cstdint>

#include <gtest/gtest.h>
#include <temper/temper.h>
#include <torch/torch.h>

#include "common/memory_meter.h"
#include "small_run.h"

namespace {

namespace nn = torch::nn;
using examples::MemoryAccount;

constexpr int64_t kWarmup = 5;
constexpr int64_t kSteps = 8;

/// Bytes at the peak of warm steps, with all that the net, its optimizer and
/// temper keep. Each step adds up the gradients of `parts` batches.
template <typename Net>
int64_t peak_bytes(const torch::Tensor& input, int64_t parts, bool compiled) {
  torch::manual_seed(3);
  temper::reset_counters();
  MemoryAccount account;
  const MemoryAccount::Use use(account);
  Net net;
  torch::optim::SGD sgd(
      net->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  if (compiled) {
    net->compile();
  }
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step == kWarmup) {
      account.reset_peak();
    }
    sgd.zero_grad();
    for (int64_t part = 0; part < parts; ++part) {
      net(input).square().mean().backward();
    }
    sgd.step();
  }
  const temper::Counters counters = temper::counters();
  EXPECT_EQ(counters.calls, compiled ? kSteps * parts : 0);
  EXPECT_EQ(counters.program_backwards, compiled ? kSteps * parts - 1 : 0);
  return account.peak_bytes();
}

template <typename Net>
void expect_no_more_than_eager(const torch::Tensor& input) {
  for (const int64_t parts : {1, 2}) {
    const int64_t eager = peak_bytes<Net>(input, parts, false);
    const int64_t compiled = peak_bytes<Net>(input, parts, true);
    int64_t waiting = 0;
    if (parts > 1) {
      // Eager adds each gradient to the sum as it comes; a program hands over
      // some at a time, up to 1 MiB: here all.
      for (const torch::Tensor& p : Net()->parameters()) {
        waiting += static_cast<int64_t>(p.nbytes());
      }
    }
    EXPECT_LE(compiled, eager + waiting) << parts << " batches a step";
    // Had nothing been counted, so would be the one above.
    EXPECT_GT(compiled, input.nbytes());
  }
}

TEST(PeakMemory, OfAGpt) {
  char_gpt::Options options = char_gpt::small_options();
  options.batch = 4;
  options.width = 32;
  char_gpt::TrainingRun run = char_gpt::small_run(options);
  char_gpt::train(run, kSteps, options);
  const auto eager = run.trainers[0]->step_bytes();
  const auto compiled = run.trainers[1]->step_bytes();
  ASSERT_TRUE(eager && compiled);
  EXPECT_LE(*compiled, *eager);
  EXPECT_GT(*compiled, 0);
}

struct CnnImpl : temper::Module<CnnImpl> {
  CnnImpl() {
    reset();
  }
  void reset() override {
    const auto conv = [](int64_t in, int64_t out) {
      return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
    };
    conv1 = register_module("conv1", conv(3, 8));
    norm1 = register_module("norm1", nn::BatchNorm2d(8));
    conv2 = register_module("conv2", conv(8, 16));
    norm2 = register_module("norm2", nn::BatchNorm2d(16));
    fc = register_module("fc", nn::Linear(16, 10));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::relu(norm2(conv2(x)));
    return fc(x.mean(torch::IntArrayRef{2, 3}));
  }

  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  nn::Linear fc{nullptr};
};
TEMPER_MODULE(Cnn);

TEST(PeakMemory, OfACnnWithBatchNorm) {
  expect_no_more_than_eager<Cnn>(torch::rand({4, 3, 16, 16}));
}

struct RecurrentImpl : temper::Module<RecurrentImpl> {
  RecurrentImpl() {
    reset();
  }
  void reset() override {
    lstm = register_module(
        "lstm",
        nn::LSTM(nn::LSTMOptions(12, 16).num_layers(2).batch_first(true)));
    out = register_module("out", nn::Linear(16, 5));
  }
  torch::Tensor forward(torch::Tensor x) {
    return out(std::get<0>(lstm->forward(x)));
  }

  nn::LSTM lstm{nullptr};
  nn::Linear out{nullptr};
};
TEMPER_MODULE(Recurrent);

TEST(PeakMemory, OfAnLstm) {
  expect_no_more_than_eager<Recurrent>(torch::rand({4, 10, 12}));
}

} // namespace
