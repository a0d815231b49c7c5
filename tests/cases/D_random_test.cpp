// Cases D: random numbers, and the statistics of normalisation.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

// Masks, gradients and the generator's state afterwards.
template <class Code>
void expect_draws(
    const Code& code,
    at::IntArrayRef size,
    torch::ScalarType dtype = torch::kFloat,
    torch::MemoryFormat format = torch::MemoryFormat::Contiguous) {
  for (const double p : {0.0, 0.3, 1.0}) {
    for (const bool training : {true, false}) {
      SCOPED_TRACE(
          "p " + std::to_string(p) + (training ? ", training" : ", eval"));
      int64_t calls_with_history = 0;
      const auto report = expect_same([&](Trial& run) {
        calls_with_history = 0;
        auto f = run.compile_function(code);
        for (int i = 0; i < 5; ++i) {
          auto x = torch::randn(size).to(dtype).contiguous(format);
          x.requires_grad_();
          auto y = f(x, p, training);
          run.note("y", y);
          run.note_generator();
          y.sum().backward();
          calls_with_history += y.is_same(x) ? 0 : 1; // Some return `x`.
          run.note_grad("x", x);
          run.note_generator();
        }
      });
      EXPECT_COUNTERS(
          report.total, eager == 0 && traces == 1 && program_calls == 4);
      EXPECT_COUNTERS(
          report.total,
          program_backwards == std::max<int64_t>(calls_with_history - 1, 0));
    }
  }
}

TEST(CasesD, D1_Dropout) {
  expect_draws(
      [](Tensor x, double p, bool t) { return torch::dropout(x, p, t); },
      {4, 6});
}

TEST(CasesD, D1_DropoutInPlace) {
  expect_draws(
      [](Tensor x, double p, bool t) {
        Tensor y = x * 1;
        torch::dropout_(y, p, t);
        return y;
      },
      {4, 6});
}

TEST(CasesD, D1_Dropout2d) {
  expect_draws(
      [](Tensor x, double p, bool t) {
        return F::dropout2d(x, F::Dropout2dFuncOptions().p(p).training(t));
      },
      {2, 5, 3, 3});
}

TEST(CasesD, D1_AlphaDropout) {
  expect_draws(
      [](Tensor x, double p, bool t) { return torch::alpha_dropout(x, p, t); },
      {4, 6});
}

TEST(CasesD, D1_FeatureAlphaDropout) {
  expect_draws(
      [](Tensor x, double p, bool t) {
        return torch::feature_alpha_dropout(x, p, t);
      },
      {4, 6, 2});
}

TEST(CasesD, D1_FeatureDropout) {
  expect_draws(
      [](Tensor x, double p, bool t) {
        return torch::feature_dropout(x, p, t);
      },
      {4, 6, 2});
  expect_draws(
      [](Tensor x, double p, bool t) {
        return F::dropout3d(x, F::Dropout3dFuncOptions().p(p).training(t));
      },
      {2, 5, 2, 3, 2});
}

TEST(CasesD, D1_MasksOfOtherDtypes) {
  for (const auto dtype : {torch::kDouble, torch::kBFloat16, torch::kHalf}) {
    SCOPED_TRACE(dtype);
    expect_draws(
        [](Tensor x, double p, bool t) { return torch::dropout(x, p, t); },
        {4, 6},
        dtype);
    expect_draws(
        [](Tensor x, double p, bool t) {
          return torch::alpha_dropout(x, p, t);
        },
        {4, 6},
        dtype);
  }
}

TEST(CasesD, D1_MasksOfOtherLayouts) {
  const auto format = torch::MemoryFormat::ChannelsLast;
  expect_draws(
      [](Tensor x, double p, bool t) { return torch::dropout(x, p, t); },
      {2, 5, 3, 3},
      torch::kFloat,
      format);
  expect_draws(
      [](Tensor x, double p, bool t) {
        return F::dropout2d(x, F::Dropout2dFuncOptions().p(p).training(t));
      },
      {2, 5, 3, 3},
      torch::kDouble,
      format);
  // A mask has the strides of what it is for.
  expect_draws(
      [](Tensor x, double p, bool t) {
        return torch::dropout(x.transpose(0, 1) * 1, p, t);
      },
      {4, 6},
      torch::kBFloat16);
}

TEST(CasesD, D1_OtherDraws) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto noise = torch::randn_like(x) + torch::rand(x.sizes());
      auto which = torch::randint(0, 10, {4}, torch::kLong);
      auto order = torch::randperm(6);
      auto coin = torch::bernoulli(torch::full_like(x, 0.5));
      auto filled = torch::empty_like(x).uniform_(-1, 1);
      auto normal = at::normal(x, 0.5);
      return std::vector<Tensor>{
          noise,
          which,
          order,
          coin,
          filled,
          normal,
          torch::multinomial(x.exp(), 2),
          torch::rrelu(x, 0.1, 0.4, true)};
    });
    for (int i = 0; i < 5; ++i) {
      run.note("all", f(torch::ones({3, 4}) * i));
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
}

TEST(CasesD, D2_MasksDifferAndSeedsRepeatThem) {
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    auto x = torch::randn({6, 4});
    std::vector<Tensor> drawn;
    for (int i = 0; i < 8; ++i) {
      if (i >= 4) {
        torch::manual_seed(static_cast<uint64_t>(i % 2));
      }
      drawn.push_back(net(x).detach());
      run.note("y", drawn.back());
      run.note_generator();
    }
    for (size_t i = 1; i < 4; ++i) {
      EXPECT_FALSE(torch::equal(drawn[i - 1], drawn[i])) << i;
    }
    EXPECT_TRUE(torch::equal(drawn[4], drawn[6]));
    EXPECT_TRUE(torch::equal(drawn[5], drawn[7]));
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
}

TEST(CasesD, D2_GeneratorOfTheUser) {
  const auto report = expect_same([](Trial& run) {
    static at::Generator mine;
    mine = at::make_generator<at::CPUGeneratorImpl>(7);
    auto f = run.compile_function([](Tensor x) {
      return x + torch::rand(x.sizes(), mine) + torch::rand(x.sizes());
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::zeros({3})));
      run.note("mine", mine.get_state());
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"aten::rand.generator draws from a generator of its own, which "
               "guards can't see yet",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

/// Activation checkpointing as LibTorch users write it: forward without a
/// graph, and again in backward with the generator as it was.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      TwoLayersImpl* net) {
    auto generator = at::detail::getDefaultCPUGenerator();
    context->saved_data["net"] = reinterpret_cast<int64_t>(net);
    context->save_for_backward({x, generator.get_state()});
    return replay(x, *net);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& grads) {
    auto saved = context->get_saved_variables();
    auto generator = at::detail::getDefaultCPUGenerator();
    auto now = generator.get_state();
    generator.set_state(saved[1]);
    auto* net =
        reinterpret_cast<TwoLayersImpl*>(context->saved_data["net"].toInt());
    const torch::AutoGradMode grad(true);
    auto x = saved[0].detach().requires_grad_();
    replay(x, *net).backward(grads[0]);
    generator.set_state(now);
    return {x.grad(), Tensor()};
  }
  static Tensor replay(const Tensor& x, TwoLayersImpl& net) {
    return torch::dropout(net.forward(x), 0.5, true);
  }
};

TEST(CasesD, D2_CheckpointDrawsTheSameMask) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto f = run.compile_function(
        [&net](Tensor x) { return Checkpoint::apply(x, net.get()).exp(); },
        net);
    for (int i = 0; i < 5; ++i) {
      net->zero_grad();
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = f(x);
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
      run.note_module("net", *net);
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"random numbers were drawn or seeded outside of tensor ops "
               "(in its backward)",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

// The same for code without random numbers: a backward inside that sets
// gradients, a tensor that is kept.
struct PlainCheckpoint : torch::autograd::Function<PlainCheckpoint> {
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      TwoLayersImpl* net) {
    context->saved_data["net"] = reinterpret_cast<int64_t>(net);
    context->save_for_backward({x});
    return net->forward(x);
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    auto* net =
        reinterpret_cast<TwoLayersImpl*>(context->saved_data["net"].toInt());
    const torch::AutoGradMode grad(true);
    auto x = context->get_saved_variables()[0].detach().requires_grad_();
    net->forward(x).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
};

TEST(CasesD, D2_CheckpointWhoseBackwardSetsGradients) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto f = run.compile_function(
        [&net](Tensor x) { return PlainCheckpoint::apply(x, net.get()).exp(); },
        net);
    for (int i = 0; i < 6; ++i) {
      net->zero_grad();
      auto x = torch::randn({3, 4}).requires_grad_();
      f(x).sum().backward();
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"torch::autograd::CppNode<temper::testing::(anonymous "
               "namespace)::PlainCheckpoint> keeps a tensor that its backward "
               "made (or a gradient that a backward inside it left) (in its "
               "backward)",
               5}});
  EXPECT_COUNTERS(report.total, program_calls == 0 && traces == 1);
}

TEST(CasesD, D3_CumulativeAverage) {
  // Without a momentum the average reads num_batches_tracked.
  const auto report = expect_same([](Trial& run) {
    torch::nn::BatchNorm1d norm(
        torch::nn::BatchNorm1dOptions(3).momentum(std::nullopt));
    auto f = run.compile_function(
        [norm](Tensor x) mutable { return norm->forward(x); }, norm);
    std::vector<Tensor> means, variances;
    for (int i = 0; i < 3; ++i) {
      auto x = torch::randn({5, 3}) + i;
      run.note("y", f(x));
      run.note_module("norm", *norm);
      means.push_back(x.mean(0));
      variances.push_back(x.var(0, /*unbiased=*/true));
    }
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 3);
    EXPECT_TRUE(torch::allclose(
        norm->running_mean, torch::stack(means).mean(0), 1e-4, 1e-5));
    EXPECT_TRUE(torch::allclose(
        norm->running_var, torch::stack(variances).mean(0), 1e-4, 1e-5));
    for (int i = 0; i < 3; ++i) {
      run.note("y", f(torch::randn({4, 3})));
      run.note_module("norm", *norm);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"data dependence: aten::_local_scalar_dense (after "
               "'num_batches_tracked')",
               4}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

TEST(CasesD, D3_MomentumAndUnbiasedVariance) {
  const auto report = expect_same([](Trial& run) {
    torch::nn::BatchNorm2d norm(
        torch::nn::BatchNorm2dOptions(3).momentum(0.25).affine(false));
    auto f = run.compile_function(
        [norm](Tensor x) mutable { return norm->forward(x); }, norm);
    for (int i = 0; i < 6; ++i) {
      if (i == 4) {
        norm->eval();
      }
      auto x = torch::randn({2, 3, 4, 4}).requires_grad_();
      auto y = f(x);
      run.note("y", y);
      y.pow(3).sum().backward();
      run.note_grad("x", x);
      run.note_module("norm", *norm);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesD, D3_StatisticsWithoutGrad) {
  // Training mode under no_grad still updates the statistics.
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 5; ++i) {
      run.note("y", net(torch::randn({4, 4})));
      run.note_module("net", *net);
      // One row only: variance of one value.
      run.attempt("one row", [&] { run.note("y", net(torch::ones({1, 4}))); });
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, reasons == Reasons{{"the code threw in each trace", 2}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 4);
}

} // namespace
} // namespace temper::testing
