// Neighbours of B4 and B5: results that are integers or truth values beside
// ones that are trained.
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

// Trains through the floating point results of `code`; the others are looked
// at, and serve as indices.
template <class Code>
void expect_trained(const Code& code) {
  const auto report = expect_same([&](Trial& run) {
    auto f = run.compile_function(code);
    const auto w = torch::randn({4, 5}).requires_grad_();
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      const Tensors all = f(x, w);
      run.note("all", all);
      auto loss = torch::zeros({});
      for (const auto& y : all) {
        EXPECT_EQ(y.requires_grad(), y.is_floating_point());
        if (y.is_floating_point()) {
          loss = loss + y.pow(2).sum();
        } else if (y.scalar_type() == torch::kLong) {
          loss = loss + w.flatten().index({y}).sum();
        }
      }
      loss.backward();
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B4_MaximumWithItsIndices) {
  expect_trained([](Tensor x, Tensor w) {
    auto [values, indices] = x.matmul(w).max(1);
    return Tensors{values, indices};
  });
  expect_trained([](Tensor x, Tensor w) {
    auto [values, indices] = x.matmul(w).min(0, /*keepdim=*/true);
    return Tensors{indices, values * 2};
  });
}

TEST(CasesB, B4_SortedAndTopmost) {
  expect_trained([](Tensor x, Tensor w) {
    auto [values, indices] = x.matmul(w).topk(2, 1);
    return Tensors{values, indices};
  });
  expect_trained([](Tensor x, Tensor w) {
    auto [values, indices] = x.matmul(w).sort(1, /*descending=*/true);
    return Tensors{indices, values, indices.argsort(1, false)};
  });
}

TEST(CasesB, B4_ArgmaxBesideWhatIsTrained) {
  expect_trained([](Tensor x, Tensor w) {
    auto y = x.matmul(w);
    return Tensors{y, y.argmax(1), y > 0, y.argmax(1).to(torch::kInt)};
  });
  // Made of the inputs alone.
  expect_trained([](Tensor x, Tensor w) {
    return Tensors{w.argmin(), x.matmul(w).tanh(), torch::arange(3)};
  });
}

TEST(CasesB, B4_IntegersAlone) {
  // Nothing requires grad, so no call waits for a backward.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      return std::make_tuple(x.argmax(1), x.sign().to(torch::kLong), x > 0);
    });
    for (int i = 0; i < 5; ++i) {
      run.note("all", f(torch::randn({3, 4}).requires_grad_()));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, compiles == 1 && admissions == 1);
}

/// Scores and the label it predicts.
struct ClassifierImpl : temper::Module<ClassifierImpl> {
  torch::nn::Linear fc{nullptr};

  ClassifierImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(4, 5));
  }
  std::tuple<Tensor, Tensor> forward(Tensor x) {
    auto scores = fc(x);
    return {scores, scores.argmax(1)};
  }
};
TEMPER_MODULE(Classifier);

TEST(CasesB, B4_AClassifierAndItsLabels) {
  const auto report = expect_same([](Trial& run) {
    Classifier net;
    run.compile(net);
    torch::optim::SGD steps(net->parameters(), 0.5);
    const auto x = torch::randn({8, 4});
    const auto labels = torch::randint(5, {8}, torch::kLong);
    for (int i = 0; i < 8; ++i) {
      steps.zero_grad();
      const auto [scores, predicted] = net(x);
      torch::cross_entropy_loss(scores, labels).backward();
      steps.step();
      run.note("predicted", predicted);
      run.note("right", (predicted == labels).sum());
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

} // namespace
} // namespace temper::testing
