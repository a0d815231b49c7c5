// Case H9: training steps, and parts of them, inside what is compiled and
// inside of backwards.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

// Calls `f(x, net)` with a leaf.
template <class F>
Report expect_steps(F f) {
  return expect_same([f](Trial& run) {
    TwoLayers net;
    auto step = run.compile_function(
        [f, &net](Tensor x) { return f(std::move(x), net); }, net);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      run.note("loss", step(x));
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
}

TEST(CasesH, H9_WholeStepInside) {
  const auto by_hand = expect_steps([](Tensor x, TwoLayers& net) {
    net->zero_grad();
    auto loss = net->forward(x).pow(2).mean();
    loss.backward();
    const torch::NoGradGuard no_grad;
    for (auto& parameter : net->parameters()) {
      parameter.sub_(parameter.grad(), 0.1);
    }
    return loss.detach();
  });
  EXPECT_COUNTERS(by_hand.total, program_calls == 0 && eager == 5);
  EXPECT_COUNTERS(
      by_hand.total, because("a backward inside the call leaves gradients"));
  const auto by_optimizer = expect_steps([](Tensor x, TwoLayers& net) {
    torch::optim::SGD steps(net->parameters(), 0.1);
    steps.zero_grad();
    auto loss = net->forward(x).pow(2).mean();
    loss.backward();
    steps.step();
    return loss.detach();
  });
  EXPECT_COUNTERS(by_optimizer.total, program_calls == 0 && eager == 5);
  EXPECT_COUNTERS(
      by_optimizer.total,
      because("a backward inside the call leaves gradients"));
}

TEST(CasesH, H9_BackwardAloneInside) {
  const auto report = expect_steps([](Tensor x, TwoLayers& net) {
    auto loss = net->forward(x).pow(2).mean();
    loss.backward();
    return loss.detach();
  });
  EXPECT_COUNTERS(report.total, program_calls == 0 && eager == 5);
  EXPECT_COUNTERS(
      report.total, because("a backward inside the call leaves gradients"));
}

TEST(CasesH, H9_UndeclaredOptimizer) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    torch::optim::SGD steps(net->parameters(), 0.1);
    auto f = run.compile_function(
        [&](Tensor x) {
          steps.zero_grad();
          auto loss = net->forward(x).pow(2).mean();
          loss.backward();
          steps.step();
          return loss.detach();
        },
        net);
    for (int i = 0; i < 6; ++i) {
      run.note("loss", f(torch::randn({3, 4})));
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, program_calls == 0);
  EXPECT_COUNTERS(report.total, because("the function's captures"));
}

TEST(CasesH, H9_ParameterWrittenInAHookDuringBackward) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    net->second->bias.register_hook([&](const Tensor& g) {
      const torch::NoGradGuard no_grad;
      net->second->bias.sub_(g, 0.1);
    });
    for (int i = 0; i < 6; ++i) {
      net->zero_grad();
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = net(x);
      run.attempt("backward", [&] { y.pow(2).sum().backward(); });
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_backwards == 5);
}

// Each parameter is stepped once its gradient is there, by an optimizer of its
// own: gradients never live all at once.
TEST(CasesH, H9_OptimizerStepInAHookDuringBackward) {
  struct Step : torch::autograd::PostAccumulateGradHook {
    explicit Step(Tensor parameter)
        : sgd({std::move(parameter)},
              torch::optim::SGDOptions(0.1).momentum(0.9)) {}
    void operator()(const Tensor& parameter) override {
      sgd.step();
      parameter.mutable_grad() = Tensor();
    }
    torch::optim::SGD sgd;
  };
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (auto& parameter : net->parameters()) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter, std::make_unique<Step>(parameter));
    }
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = net(x);
      // The step of a weight that an earlier layer's backward has yet to read
      // would be an error in eager, too.
      run.attempt("backward", [&] { y.pow(2).sum().backward(); });
      run.note("y", y);
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_backwards == 5);
}

} // namespace
} // namespace temper::testing
