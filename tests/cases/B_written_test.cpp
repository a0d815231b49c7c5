// Neighbours of B12 and C1: arguments with a history that the call writes to,
// and results made in inference mode.
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

// A loss of the result and of what became of the argument.
template <class F>
Report expect_written(F f) {
  return expect_same([f](Trial& run) {
    auto scale = torch::randn({3}).requires_grad_();
    auto compiled = run.compile_function(
        [f, &scale](Tensor x) { return f(x, scale); }, scale);
    for (int i = 0; i < 8; ++i) {
      auto w = torch::randn({2, 3}).requires_grad_();
      auto x = w * 2;
      if (i % 4 == 3) {
        x.retain_grad();
      }
      auto y = compiled(x);
      run.note("y", y);
      run.note("x", x);
      run.note("version", static_cast<int64_t>(x._version()));
      (y.sum() + (x * x).sum()).backward();
      run.note_grad("w", w);
      run.note_grad("scale", scale);
      if (i % 4 == 3) {
        run.note("x.grad", x.grad());
      }
    }
  });
}

TEST(CasesB, Written_InPlace) {
  const auto report = expect_written(
      [](Tensor x, const Tensor& scale) { return x.mul_(scale).sin(); });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

TEST(CasesB, Written_TheArgumentIsTheResult) {
  const auto report = expect_written(
      [](Tensor x, const Tensor& scale) { return x.mul_(scale).add_(1); });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

TEST(CasesB, Written_SeenBeforeAndAfter) {
  const auto report = expect_written([](Tensor x, const Tensor& scale) {
    auto before = x.sum(0);
    x.copy_(x.exp() * scale);
    return before + x.view({3, 2}).sum();
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

TEST(CasesB, Written_PartOfIt) {
  const auto report = expect_written([](Tensor x, const Tensor& scale) {
    x.select(0, 1).mul_(scale);
    return x + 1;
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

TEST(CasesB, Written_ByBothUsesOfTheArgument) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      x.add_(y.sum());
      y.mul_(2);
      return std::vector<Tensor>{x, y.detach(), x * y};
    });
    for (int i = 0; i < 6; ++i) {
      auto w = torch::randn({4}).requires_grad_();
      auto x = w.sin();
      auto y = w.cos();
      auto out = f(x, y);
      run.note("out", out);
      run.note("x", x);
      run.note("y", y);
      (out[2].sum() + x.exp().sum() + y.sum()).backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, Written_ViewsAndAliasesAreEager) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return x.mul_(2) + 1; });
    for (int i = 0; i < 5; ++i) {
      auto w = torch::randn({2, 3}).requires_grad_();
      auto base = w * 1;
      auto x = base.select(0, 0);
      run.note("y", f(x));
      run.note("base", base);
      (base.sum() + x.exp().sum()).backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"the call changes the history of an argument", 4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesB, Written_ABackwardThatComesLate) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return x.mul_(2).sin(); });
    for (int i = 0; i < 24; ++i) {
      auto w = torch::randn({4}).requires_grad_();
      auto x = w * 1;
      auto y = f(x);
      run.note("y", y);
      if (i >= 12) {
        y.sum().backward();
        run.note_grad("w", w);
      }
    }
  });
  // What the call wrote is not there for a run of the code again, so it is not
  // compiled without a backward: it is traced now and then until one comes.
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"waiting for the backward of a traced call", 4},
              {"no backward has come, which must be known where an argument "
               "with a history is written",
               11}});
  EXPECT_COUNTERS(report.total, traces == 5 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, Written_ResultsOfInferenceMode) {
  const auto report = expect_same([](Trial& run) {
    auto w = torch::randn({3, 3});
    auto f = run.compile_function(
        [&w](Tensor x) {
          const c10::InferenceMode guard;
          return x.mm(w).relu();
        },
        w);
    for (int i = 0; i < 5; ++i) {
      auto y = f(torch::randn({2, 3}));
      run.note("y", y);
      run.note("is inference", static_cast<int64_t>(y.is_inference()));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
}

} // namespace
} // namespace temper::testing
