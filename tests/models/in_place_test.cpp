// What a model writes in place is written in place by its program: no copy, no
// memory that eager does not take. Copies would cost as much as the state is
// large, in each call, and no value would tell.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "support/allocations.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

/// What the calls of a scenario allocated, eagerly and compiled.
struct Measured {
  size_t bytes[2] = {0, 0};
  size_t largest[2] = {0, 0};

  /// Adds what `call` allocates.
  template <class F>
  auto during(const Trial& run, F&& call) {
    const Allocations allocations;
    auto result = call();
    const size_t side = run.compiled() ? 1 : 0;
    bytes[side] += allocations.bytes();
    largest[side] = std::max(largest[side], allocations.largest());
    return result;
  }
};

constexpr int kCalls = 5;
/// The calls that are measured are admitted.
constexpr int kWarmUp = 3;

/// Runs the scenario in both ways, equal bit for bit; then no program may have
/// a copy, nor may calls have allocated more than eager's.
Tally expect_no_copies(
    const std::function<void(Trial&, Measured&)>& scenario,
    Measured& measured) {
  const base::LogCapture log;
  base::set_log_topics("program");
  const auto report = expect_same([&](Trial& run) { scenario(run, measured); });
  base::set_log_topics("");
  EXPECT_FALSE(log.saw("temper::copy_memory"));
  if (!disabled() && !has_mutant()) {
    EXPECT_TRUE(log.saw("forward:"));
    EXPECT_GT(measured.bytes[1], 0U);
    EXPECT_LE(measured.bytes[1], measured.bytes[0]);
  }
  return report.total;
}

constexpr int64_t kChannels = 1 << 12;

struct NormImpl : temper::Module<NormImpl> {
  nn::BatchNorm1d norm{nullptr};

  NormImpl() {
    reset();
  }
  void reset() override {
    norm = register_module("norm", nn::BatchNorm1d(kChannels));
  }
  Tensor forward(Tensor x) {
    return norm(x);
  }
};
TEMPER_MODULE(Norm);

// Running mean and variance, and the number of batches.
TEST(InPlace, StatisticsOfBatchNorm) {
  for (const bool train : {true, false}) {
    Measured measured;
    const auto tally = expect_no_copies(
        [&](Trial& run, Measured& m) {
          Norm net;
          run.compile(net);
          for (int i = 0; i < kCalls; ++i) {
            const torch::AutoGradMode mode(train);
            auto x = torch::randn({3, kChannels});
            auto y =
                i < kWarmUp ? net(x) : m.during(run, [&] { return net(x); });
            run.note("y", y);
            if (train) {
              y.square().mean().backward();
            }
            run.note_module("net", *net);
          }
        },
        measured);
    EXPECT_COUNTERS(
        tally,
        eager == 0 && traces == 1 && program_calls == 4 &&
            program_backwards == (train ? 4 : 0));
  }
}

/// One head of attention over all tokens so far, [1, dim] a call, on a cache of
/// 4 MiB each for keys and values.
struct CachedImpl : temper::Module<CachedImpl> {
  static constexpr int64_t kDim = 64, kMaxSeq = 1 << 14;
  static constexpr size_t kCacheBytes = kDim * kMaxSeq * sizeof(float);
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr};
  Tensor keys, values;

  CachedImpl() {
    reset();
  }
  void reset() override {
    q = register_module("q", nn::Linear(kDim, kDim));
    k = register_module("k", nn::Linear(kDim, kDim));
    v = register_module("v", nn::Linear(kDim, kDim));
    keys = register_buffer("keys", torch::zeros({kMaxSeq, kDim}));
    values = register_buffer("values", torch::zeros({kMaxSeq, kDim}));
  }
  Tensor forward(Tensor x, int64_t at) {
    keys.narrow(0, at, 1).copy_(k(x).detach());
    values.narrow(0, at, 1).copy_(v(x).detach());
    const auto scores = torch::matmul(q(x), keys.narrow(0, 0, at + 1).t());
    return torch::matmul(
        torch::softmax(scores, -1), values.narrow(0, 0, at + 1));
  }
};
TEMPER_MODULE(Cached);

// In a differentiable call, too, where the backward reads the cache.
TEST(InPlace, KeysAndValuesOfACache) {
  for (const bool train : {false, true}) {
    Measured measured;
    const auto tally = expect_no_copies(
        [&](Trial& run, Measured& m) {
          Cached net;
          run.compile(net);
          constexpr int64_t kAt = 9;
          for (int i = 0; i < kCalls; ++i) {
            const torch::AutoGradMode mode(train);
            auto x = torch::randn({1, CachedImpl::kDim});
            auto y = i < kWarmUp ? net(x, kAt)
                                 : m.during(run, [&] { return net(x, kAt); });
            run.note("y", y);
            if (train) {
              y.sum().backward();
            }
            run.note("keys", net->keys.narrow(0, 0, kAt + 1));
            run.note("values", net->values.narrow(0, 0, kAt + 1));
            run.note_grad("q", net->q->weight);
          }
        },
        measured);
    EXPECT_LT(measured.largest[1], CachedImpl::kCacheBytes / 16);
    EXPECT_COUNTERS(
        tally,
        eager == 0 && traces == 1 && program_calls == 4 &&
            program_backwards == (train ? 4 : 0));
  }
}

/// Adam as one writes it by hand, without bias correction.
void adam(
    const std::vector<Tensor>& parameters,
    const std::vector<Tensor>& gradients,
    const std::vector<Tensor>& means,
    const std::vector<Tensor>& squares,
    double rate) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters.size(); ++i) {
    means[i].mul_(0.9).add_(gradients[i], 0.1);
    squares[i].mul_(0.99).addcmul_(gradients[i], gradients[i], 0.01);
    parameters[i].addcdiv_(means[i], squares[i].sqrt().add_(1e-6), -rate);
  }
}

// A compiled net is trained by a compiled step; a second net follows it slowly,
// as the target net of a DQN, by another.
TEST(InPlace, StatesOfAnOptimizerAndASoftUpdate) {
  constexpr int64_t kWidth = 64;
  Measured measured;
  const auto tally = expect_no_copies(
      [&](Trial& run, Measured& m) {
        nn::Sequential net(
            nn::Linear(kWidth, kWidth), nn::Tanh(), nn::Linear(kWidth, 1));
        auto forward = run.compile_function(
            [net](Tensor x) mutable { return net->forward(x); }, net);
        const auto parameters = net->parameters();
        std::vector<Tensor> means, squares, targets;
        for (const Tensor& p : parameters) {
          means.push_back(torch::zeros_like(p));
          squares.push_back(torch::zeros_like(p));
          targets.push_back(p.detach().clone());
        }
        double rate = 0.01;
        auto step = run.compile_function(
            [&](const std::vector<Tensor>& gradients) {
              adam(parameters, gradients, means, squares, rate);
            },
            parameters,
            means,
            squares,
            rate);
        auto follow = run.compile_function(
            [&](double share) {
              const torch::NoGradGuard no_grad;
              for (size_t i = 0; i < targets.size(); ++i) {
                targets[i].mul_(1 - share).add_(parameters[i], share);
              }
            },
            parameters,
            targets);
        const auto x = torch::randn({8, kWidth});
        for (int i = 0; i < 2 * kCalls; ++i) {
          // Another rate is a number of the same program.
          rate = i < kCalls ? 0.01 : 0.005;
          auto loss = forward(x).square().mean();
          const auto gradients = torch::autograd::grad({loss}, parameters);
          const auto update = [&] {
            step(gradients);
            follow(0.05);
            return 0;
          };
          if (i % kCalls < kWarmUp) {
            update();
          } else {
            m.during(run, update);
          }
          run.note("loss", loss);
          run.note("parameters", parameters);
          run.note("means", means);
          run.note("squares", squares);
          run.note("targets", targets);
        }
      },
      measured);
  // Two rates are two signatures of the step. So are the gradients of the
  // traced call, some of which are views as eager's are; those of a program are
  // none.
  EXPECT_COUNTERS(
      tally,
      eager == 0 && traces == 5 && shadow_runs == 4 && program_calls == 25 &&
          graphs == 3 && program_backwards == 9);
}

} // namespace
} // namespace temper::testing
