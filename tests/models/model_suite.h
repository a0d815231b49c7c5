// The tests that each model must pass: training and evaluation, compiled and
// eager, show the same outputs, gradients, weights, buffers and generator.
//
// A model joins with a struct that makes it, its batches and its step:
//
//   struct MlpModel : Supervised<MlpModel, Mlp> {
//     using Supervised::Supervised;
//     static Batch batch(int64_t n) { return {torch::randn({n, 8}), …}; }
//     torch::Tensor loss(Trial& run, const Batch& batch) {
//       auto y = net(batch[0]);
//       run.note("y", y);
//       return torch::mse_loss(y, batch[1]);
//     }
//   };
//   TEMPER_TEST_MODEL(Mlp, MlpModel);
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "support/compare.h"

namespace temper::testing {

using Batch = std::vector<torch::Tensor>;

/// How a model is trained.
struct Plan {
  std::vector<int64_t> sizes = {3}; ///< Batch sizes, in turn.
  bool alternate_modes = false; ///< Evaluate after each training step.
  bool adam = false; ///< AdamW, else SGD with momentum.
};

inline std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const Plan& plan,
    std::vector<torch::Tensor> parameters) {
  if (plan.adam) {
    return std::make_unique<torch::optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(1e-2));
  }
  return std::make_unique<torch::optim::SGD>(
      std::move(parameters), torch::optim::SGDOptions(1e-2).momentum(0.9));
}

/// What temper does for a model.
struct Work {
  /// Signatures of a batch size that are compiled: of a training step and of an
  /// evaluation. Each is traced once.
  int64_t signatures = 2;
  /// The graphs that they have, whatever the batch size.
  int64_t graphs = 2;
  /// Compiled backward passes in a training step.
  int64_t backwards = 1;
  /// Calls of a size that wait for a backward of the first training step.
  int64_t waiting = 0;
  /// Traces of a size that come to nothing, calls of it that are eager for
  /// `reason` (how it begins), and what was compiled all the same.
  int64_t failed_traces = 0;
  int64_t eager = 0;
  const char* reason = nullptr;
};

/// A model with one net, one optimizer and one loss. `Model` adds `batch` and
/// `loss`, and may replace `evaluate`.
template <class Model, class NetHolder>
struct Supervised {
  static constexpr Work kWork = {};

  /// `arguments` are those of the net's constructor.
  template <class... Arguments>
  Supervised(Trial& run, const Plan& plan, Arguments&&... arguments)
      : net(std::forward<Arguments>(arguments)...),
        optimizer(make_optimizer(plan, net->parameters())) {
    run.compile(net);
  }

  void train(Trial& run, const Batch& batch) {
    net->train();
    optimizer->zero_grad();
    auto loss = static_cast<Model*>(this)->loss(run, batch);
    loss.backward();
    optimizer->step();
    run.note("loss", loss);
    for (size_t i = 0; i < batch.size(); ++i) {
      run.note("batch[" + std::to_string(i) + "]", batch[i]);
      run.note_grad("batch[" + std::to_string(i) + "]", batch[i]);
    }
  }

  void evaluate(Trial& run, const Batch& batch) {
    const torch::NoGradGuard no_grad;
    net->eval();
    run.note("evaluation", static_cast<Model*>(this)->loss(run, batch));
  }

  void note(Trial& run) {
    run.note_module("net", *net);
  }

  NetHolder net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

/// Five rounds of training, of which the first three are warm-up (one call to
/// trace, one to prove, one admitted), and as many of evaluation.
template <class Model>
void rehearse(Trial& run, const Plan& plan) {
  constexpr int kRounds = 5;
  constexpr int kWarmUp = 3;
  std::vector<Batch> batches;
  for (const int64_t n : plan.sizes) {
    batches.push_back(Model::batch(n));
  }
  Model model(run, plan);
  const auto rounds = [&](const auto& step) {
    for (int round = 0; round < kRounds; ++round) {
      if (round == kWarmUp) {
        run.steady();
      }
      for (Batch batch : batches) {
        // Other values each time, and leaves whose gradients start undefined.
        for (auto& t : batch) {
          const bool wants_grad = t.requires_grad();
          t = t.is_floating_point() ? (t.detach() + 0.125 * round).detach()
                                    : t.clone();
          t.requires_grad_(wants_grad);
        }
        step(batch);
        run.note_generator();
        model.note(run);
      }
    }
    run.warm_up();
  };
  rounds([&](const Batch& batch) {
    model.train(run, batch);
    if (plan.alternate_modes) {
      model.evaluate(run, batch);
    }
  });
  if (!plan.alternate_modes) {
    rounds([&](const Batch& batch) { model.evaluate(run, batch); });
  }
}

template <class Model>
void expect_trains_like_eager(const Plan& plan) {
  const auto report =
      expect_same([&](Trial& run) { rehearse<Model>(run, plan); });
  constexpr Work work = Model::kWork;
  const auto sizes = static_cast<int64_t>(plan.sizes.size());
  EXPECT_COUNTERS(
      report.total,
      traces == sizes * (work.signatures + work.failed_traces) &&
          shadow_runs == sizes * work.signatures &&
          admissions == sizes * work.signatures);
  // A new size is traced and proved; its graphs are known.
  EXPECT_COUNTERS(
      report.total, graphs == work.graphs && compiles == work.graphs);
  EXPECT_COUNTERS(
      report.total,
      eager_for("waiting for the backward of a traced call") ==
              sizes * work.waiting &&
          eager == sizes * (work.waiting + work.eager));
  EXPECT_COUNTERS(report.total, program_calls == calls - traces - eager);
  EXPECT_COUNTERS(
      report.steady, program_backwards == 2 * sizes * work.backwards);
  if (work.reason != nullptr) {
    EXPECT_COUNTERS(report.total, eager_for(work.reason) == sizes * work.eager);
  } else {
    EXPECT_COUNTERS(
        report.steady,
        calls > 0 && traces == 0 && eager == 0 && program_calls == calls);
  }
}

template <class Model>
class ModelTest : public ::testing::Test {};

TYPED_TEST_SUITE_P(ModelTest);

TYPED_TEST_P(ModelTest, OneSize) {
  expect_trains_like_eager<TypeParam>(Plan());
}

TYPED_TEST_P(ModelTest, TwoSizesInTurn) {
  Plan plan;
  plan.sizes = {2, 4};
  plan.adam = true;
  expect_trains_like_eager<TypeParam>(plan);
}

TYPED_TEST_P(ModelTest, TrainAndEvalInTurn) {
  Plan plan;
  plan.alternate_modes = true;
  expect_trains_like_eager<TypeParam>(plan);
}

TYPED_TEST_P(ModelTest, SizesAndModesInTurn) {
  Plan plan;
  plan.sizes = {4, 2};
  plan.alternate_modes = true;
  plan.adam = true;
  expect_trains_like_eager<TypeParam>(plan);
}

REGISTER_TYPED_TEST_SUITE_P(
    ModelTest,
    OneSize,
    TwoSizesInTurn,
    TrainAndEvalInTurn,
    SizesAndModesInTurn);

} // namespace temper::testing

#define TEMPER_TEST_MODEL(name, Model) \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, ModelTest, ::testing::Types<Model>)
