// Case C1: results that are views, from which more is computed.
#include <gtest/gtest.h>

#include <functional>
#include <tuple>

#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

// A result that is a view, and what the call computes from it: hooks and
// retain_grad() see the gradients from outside and from inside.
Report use_view_and_rest(
    const std::function<std::tuple<Tensor, Tensor>(Tensor)>& forward) {
  return expect_same([&](Trial& run) {
    auto f = run.compile_function(forward);
    for (int i = 0; i < 9; ++i) {
      auto x = torch::randn({2, 3}).requires_grad_();
      auto [rest, view] = f(x);
      if (i % 3 == 1) {
        view.register_hook([](const Tensor& g) { return g * 10; });
      }
      if (i % 3 == 2) {
        view.retain_grad();
      }
      run.note("strides", at::tensor(view.strides()));
      (rest.pow(2).sum() + view.exp().sum()).backward();
      run.note_grad("x", x);
      if (i % 3 == 2) {
        run.note_grad("view", view);
      }
      auto [again, seen] = f(x);
      run.note(
          "of the view", torch::autograd::grad({again.sum()}, {seen}).at(0));
    }
  });
}

TEST(CasesC, C1_AViewFromWhichTheRestIsComputed) {
  const std::function<std::tuple<Tensor, Tensor>(Tensor)> codes[] = {
      [](Tensor x) {
        auto v = (x * 2);
        return std::make_tuple(v.exp(), v);
      },
      [](Tensor x) {
        auto v = (x * 2).t();
        return std::make_tuple(v.matmul(v.t()), v);
      },
      [](Tensor x) {
        auto v = torch::relu(x).flatten(0);
        return std::make_tuple(v.exp(), v);
      },
      [](Tensor x) {
        auto v = x.exp().slice(1, 1);
        return std::make_tuple(v * v.sum(), v);
      }};
  for (const auto& code : codes) {
    const auto report = use_view_and_rest(code);
    EXPECT_COUNTERS(
        report.total,
        reasons == Reasons{{"a backward of a kind not seen before", 1}});
    EXPECT_COUNTERS(report.total, admissions == 1 && program_backwards > 12);
  }
}

// A custom function runs its forward without a graph, and has an edge all the
// same.
struct Scale : torch::autograd::Function<Scale> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    return x * 5;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 5};
  }
};

TEST(CasesC, C1_AViewThatACustomFunctionTakes) {
  const auto report = use_view_and_rest([](Tensor x) {
    auto v = (x * 2).t();
    return std::make_tuple(Scale::apply(v), v);
  });
  EXPECT_COUNTERS(report.total, admissions == 1 && program_backwards > 10);
}

// What is computed without a graph sends nothing back.
TEST(CasesC, C1_AViewFromWhichTheRestIsComputedWithoutAGraph) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto v = (x * 2).sum(0, true).expand({3, 4});
      const torch::NoGradGuard no_grad;
      return std::make_tuple(v - 1, v, x.t().exp());
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto v = std::get<1>(f(x));
      if (i % 2 == 1) {
        v.select(0, 0).add_(1);
      }
      v.backward(torch::randn({3, 4}));
      run.note("v", v);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_backwards == 7);
}

TEST(CasesC, C1_AnExpandedViewFromWhichTheRestIsComputed) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto v = x.sum(0, true).expand({3, 4});
      return std::make_tuple(v, v.exp());
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto [v, rest] = f(x);
      if (i % 2 == 1) {
        v.select(0, 0).add_(1);
      }
      (v.sum() + rest.sum()).backward();
      run.note("v", v);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a result is an expanded view, and something else is computed "
               "from it",
               4}});
}

// Where both can't be, the call is eager and says so.
TEST(CasesC, C1_ViewsOfOthersFromWhichMoreIsComputed) {
  const auto of_input = use_view_and_rest([](Tensor x) {
    auto v = x.t();
    return std::make_tuple(v.exp(), v);
  });
  EXPECT_COUNTERS(
      of_input.total,
      reasons ==
          Reasons{
              {"a result is a view of an input, and something else is computed "
               "from it",
               17}});
  const auto of_result = use_view_and_rest([](Tensor x) {
    auto v = x.exp().t();
    return std::make_tuple(v.t(), v);
  });
  EXPECT_COUNTERS(
      of_result.total,
      reasons ==
          Reasons{
              {"a result is a view of another's memory, and something else is "
               "computed from it",
               17}});
}

} // namespace
} // namespace temper::testing
