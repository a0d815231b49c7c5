// Case H13 further: compiled code inside code that is eager, that leaves its
// trace, or that autograd calls.
#include <gtest/gtest.h>

#include <functional>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace autograd = torch::autograd;

/// Eager for good: it reads a number, before or after it calls what is inside.
struct ReadingOuterImpl : temper::Module<ReadingOuterImpl> {
  TwoLayers inner{nullptr};
  torch::nn::Linear out{nullptr};
  bool reads_first;

  explicit ReadingOuterImpl(bool first) : reads_first(first) {
    reset();
  }
  void reset() override {
    inner = register_module("inner", TwoLayers());
    out = register_module("out", torch::nn::Linear(3, 2));
  }
  Tensor forward(Tensor x) {
    const double before = reads_first ? x.detach().sum().item<double>() : 1;
    auto y = inner(x);
    const double after = reads_first ? 1 : y.detach().sum().item<double>();
    return out(y) * (before + after);
  }
};
TEMPER_MODULE(ReadingOuter);

TEST(CasesH, H13_CompiledInsideEager) {
  for (const bool reads_first : {true, false}) {
    const auto report = expect_same([reads_first](Trial& run) {
      ReadingOuter net(reads_first);
      run.compile(net->inner);
      run.compile(net);
      for (int i = 0; i < 7; ++i) {
        auto x = torch::randn({2, 4}).requires_grad_();
        auto y = net(x);
        run.note("y", y);
        net->zero_grad();
        y.sum().backward();
        run.note_grad("x", x);
        run.note_module("net", *net);
      }
      // The outer's first call was a trace, and all in it is part of that.
      if (run.compiled()) {
        EXPECT_COUNTERS(
            temper::counters_of(net->inner),
            calls == 6 && eager == 0 && traces == 1 && admissions == 1 &&
                program_calls == 5 && program_backwards == 5);
        EXPECT_COUNTERS(
            temper::counters_of(net),
            calls == 7 && traces == 1 && program_calls == 0 && eager == 6 &&
                because("aten::_local_scalar_dense"));
      }
    });
    EXPECT_COUNTERS(report.total, program_backwards == 5);
  }
}

// What the code below does depends on it, and no guard sees it.
int64_t turn = 0;

// The outer's shadow run goes on with real tensors when it comes to the inner
// call, which is a part of it all the same.
TEST(CasesH, H13_CompiledInsideAShadowRunThatHasMaterialised) {
  for (const bool known : {true, false}) {
    const auto report = expect_same([known](Trial& run) {
      TwoLayers inner;
      auto outer = run.compile_function(
          [&inner](Tensor x) {
            auto y = turn == 1 ? x.sin() : x.cos();
            return inner(y).tanh();
          },
          inner);
      run.compile(inner);
      for (int i = 0; i < 4 && known; ++i) {
        inner(torch::randn({2, 4}).requires_grad_()).sum().backward();
      }
      // Traced, shadowed until they differ, traced, shadowed, and admitted.
      for (turn = 0; turn < 7; ++turn) {
        auto x = torch::randn({2, 4}).requires_grad_();
        auto y = outer(x);
        run.note("y", y);
        inner->zero_grad();
        y.sum().backward();
        run.note_grad("x", x);
        run.note_module("inner", *inner);
      }
      if (run.compiled()) {
        EXPECT_COUNTERS(
            temper::counters_of(inner),
            calls == (known ? 4 : 0) && program_calls == (known ? 3 : 0));
      }
    });
    EXPECT_COUNTERS(
        report.total,
        reasons ==
            Reasons{
                {"differs from call to call: aten::sin: the trace had aten::cos",
                 1}});
    EXPECT_COUNTERS(
        report.total,
        traces == (known ? 3 : 2) && program_calls == (known ? 7 : 4) &&
            program_backwards == program_calls);
  }
}

// Autograd calls it, in no call of temper's.
TEST(CasesH, H13_CompiledInAHook) {
  const auto report = expect_same([](Trial& run) {
    auto clip = run.compile_function(
        [](const Tensor& g) { return g.clamp(-0.5, 0.5) * 2; });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      x.register_hook([&](const Tensor& g) { return clip(g); });
      x.pow(2).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && admissions == 1 && program_calls == 5);
}

// As above, in backwards of compiled calls: between two of them, and behind.
TEST(CasesH, H13_CompiledInAHookBetweenCompiledCalls) {
  const auto report = expect_same([](Trial& run) {
    auto clip = run.compile_function(
        [](const Tensor& g) { return g.clamp(-0.5, 0.5) * 2; });
    auto first = run.compile_function([](Tensor x) { return x.sin() * 2; });
    auto second = run.compile_function([](Tensor x) { return x.exp().sum(); });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      x.register_hook([&](const Tensor& g) { return clip(g); });
      auto y = first(x);
      y.register_hook([&](const Tensor& g) { return clip(g); });
      second(y).backward();
      run.note("y", y);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 3 && admissions == 3 && program_calls == 21);
  EXPECT_COUNTERS(report.total, program_backwards == 10);
}

std::function<Tensor(const Tensor&)> scale;

struct ScaledBack : autograd::Function<ScaledBack> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list g) {
    return {scale(g[0])};
  }
};

TEST(CasesH, H13_CompiledInABackwardOfTheUsers) {
  const auto report = expect_same([](Trial& run) {
    scale = run.compile_function(
        [](const Tensor& g) { return g.clamp(-0.5, 0.5) * 3; });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      ScaledBack::apply(x).sin().sum().backward();
      run.note_grad("x", x);
    }
    scale = nullptr;
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && admissions == 1 && program_calls == 5);
}

// While that backward is recorded, the inner call is part of the record.
TEST(CasesH, H13_CompiledInABackwardThatIsRecorded) {
  const auto report = expect_same([](Trial& run) {
    auto f =
        temper::compile([](const Tensor& g) { return g.clamp(-0.5, 0.5) * 3; });
    if (run.compiled()) {
      scale = f;
    } else {
      scale = [](const Tensor& g) { return g.clamp(-0.5, 0.5) * 3; };
    }
    auto outer = run.compile_function(
        [](const Tensor& x) { return ScaledBack::apply(x).sin(); });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      outer(x).sum().backward();
      run.note_grad("x", x);
    }
    scale = nullptr;
    EXPECT_EQ(f.counters().calls, 0);
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 2 && admissions == 1 && program_calls == 4 &&
          program_backwards == 4);
}

} // namespace
} // namespace temper::testing
