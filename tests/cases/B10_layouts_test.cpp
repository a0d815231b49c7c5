// Case B10: layouts of gradients and inputs.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

constexpr int kLayouts = 6;

// A gradient of these sizes (four of them) that lies in memory in one of six
// ways.
Tensor gradient_of(at::IntArrayRef sizes, int way) {
  switch (way) {
    case 0:
      return torch::randn({}).expand(sizes);
    case 1:
      return torch::randn({sizes[0], sizes[1], sizes[3], sizes[2]})
          .transpose(2, 3);
    case 2:
      return torch::randn(sizes).contiguous(torch::MemoryFormat::ChannelsLast);
    case 3:
      return torch::randn({sizes[0] + 3, sizes[1], sizes[2], 2 * sizes[3] + 1})
          .slice(0, 2, sizes[0] + 2)
          .slice(3, 1, 2 * sizes[3] + 1, 2);
    case 4:
      return torch::randn({sizes[1], sizes[2], 1}).expand(sizes);
    default:
      return torch::randn(sizes);
  }
}

// Composite operators of a backward go by the strides of the gradient: each is
// a kind of its own, which is recorded when it comes a second time. `kinds`: so
// many reach the call.
void expect_each_layout(
    const std::function<Tensor(Tensor, Tensor)>& forward,
    int kinds = kLayouts) {
  for (const int first : {0, 1, 3, 5}) {
    SCOPED_TRACE("the first gradient is of kind " + std::to_string(first));
    const auto report = expect_same([&](Trial& run) {
      auto f = run.compile_function(forward);
      const auto step = [&](int way) {
        auto x = torch::randn({2, 3, 4, 4}).requires_grad_();
        auto w = torch::randn({3, 3, 4, 4}).requires_grad_();
        auto y = f(x, w);
        y.backward(gradient_of(y.sizes(), way));
        run.note_grad("x", x);
        run.note_grad("w", w);
      };
      step(first);
      step(first);
      for (int i = 0; i < 5 * kLayouts; ++i) {
        step((first + i / 5) % kLayouts);
      }
    });
    EXPECT_COUNTERS(
        report.total,
        reasons ==
            Reasons{{"a backward of a kind not seen before", kinds - 1}});
    // Of the others the first backward runs the code, the second call is
    // traced.
    EXPECT_COUNTERS(
        report.total, traces == kinds && program_calls == 32 - kinds);
    EXPECT_COUNTERS(
        report.total,
        program_backwards == 32 - kinds - (kinds - 1) && admissions == 1);
  }
}

TEST(CasesB, B10_LayoutsOfTheGradient) {
  expect_each_layout([](Tensor x, Tensor w) {
    return torch::conv2d(torch::relu(x), w, {}, 1, 2);
  });
}

TEST(CasesB, B10_LayoutsOfTheGradientOfWhatIsReshaped) {
  expect_each_layout([](Tensor x, Tensor w) {
    return torch::linear(x, w.select(0, 0).select(0, 0));
  });
  expect_each_layout([](Tensor x, Tensor w) {
    return x.reshape({6, 16}).mul(2).view({2, 4, 3, 4}) + w.mean();
  });
  expect_each_layout([](Tensor x, Tensor w) {
    return x.flatten(1).unflatten(1, {4, 3, 4}).repeat({2, 1, 1, 1}) * w.sum();
  });
  // The result is a view, which is taken outside of the program: its own
  // backward makes the same of some.
  expect_each_layout(
      [](Tensor x, Tensor w) {
        return torch::matmul(x.view({6, 4, 4}), w.select(0, 1).select(0, 1))
            .view({2, 3, 4, 4});
      },
      4);
}

// Past the first step, too, where a gradient from outside meets one from
// inside, or is alone.
TEST(CasesB, B10_LayoutsOfGradientsThatComeInTheMiddle) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) {
      auto h = torch::linear(x, w);
      return std::make_tuple(h, h.exp().sum());
    });
    for (int i = 0; i < 6 * kLayouts; ++i) {
      auto x = torch::randn({2, 3, 4, 4}).requires_grad_();
      auto w = torch::randn({4, 4}).requires_grad_();
      auto [h, y] = f(x, w);
      const auto g = gradient_of({2, 3, 4, 4}, i / 6);
      if (i % 2 == 0) {
        torch::autograd::backward({h, y}, {g, torch::ones({})});
      } else {
        h.register_hook([g](const Tensor& /*sum*/) { return g; });
        y.backward();
      }
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 1 && admissions == 1);
  EXPECT_COUNTERS(report.total, program_calls == 35 && program_backwards == 35);
}

// What goes past an inner result is underway between the steps of a backward
// when a gradient with other strides comes there.
TEST(CasesB, B10_LayoutsWhereGradientsAreUnderway) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) {
      auto h = torch::linear(x, w);
      auto inner = h * h;
      return std::make_tuple(inner, inner.tanh() + h);
    });
    for (int i = 0; i < 5 * kLayouts; ++i) {
      auto x = torch::randn({2, 3, 4, 4}).requires_grad_();
      auto w = torch::randn({4, 4}).requires_grad_();
      auto [inner, y] = f(x, w);
      const auto g = torch::randn_like(y);
      if (i < 5) {
        y.backward(g);
      } else {
        torch::autograd::backward(
            {y, inner}, {g, gradient_of(y.sizes(), i / 5)});
      }
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && program_calls == 29 &&
          program_backwards == 29);
}

TEST(CasesB, B10_LayoutsOfTheInput) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (int i = 0; i < 12; ++i) {
      Tensor x;
      switch (i % 4) {
        case 0:
          x = torch::randn({4, 3}).t();
          break;
        case 1:
          x = torch::randn({1, 4}).expand({3, 4});
          break;
        case 2:
          x = torch::randn({9, 4}).slice(0, 1, 9, 3);
          break;
        default:
          x = torch::randn({3, 4});
      }
      x.requires_grad_();
      auto y = net(x);
      run.note("y", y);
      y.pow(2).sum().backward();
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 4 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 8);
}

TEST(CasesB, B10_AGradientInTheMemoryOfSomethingElse) {
  // Of an argument, a weight, a result, or of another gradient.
  for (int which = 0; which < 4; ++which) {
    const auto report = expect_same([which](Trial& run) {
      auto w = torch::randn({3}).requires_grad_();
      auto f = run.compile_function([](Tensor x, Tensor v) -> Pair {
        auto [variance, mean] = at::var_mean(x * v, {0}, true, true);
        return {torch::tanh(x * v), variance + mean};
      });
      for (int i = 0; i < 6; ++i) {
        auto x = torch::randn({3}).requires_grad_();
        auto [y, z] = f(x, w);
        auto g = torch::randn({3});
        if (i == 0) {
          g = which == 0 ? x.detach() : which == 1 ? w.detach() : y.detach();
        }
        if (which == 3) {
          auto one = torch::randn({1});
          torch::autograd::backward(
              {y, z}, {one.expand({3}), i == 0 ? one : torch::randn({1})});
        } else {
          y.backward(g);
        }
        run.note_grad("x", x);
        run.note_grad("w", w);
      }
    });
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 1 && program_calls == 5);
    EXPECT_COUNTERS(report.total, program_backwards == 5);
  }
}

struct Two : torch::autograd::Function<Two> {
  static torch::autograd::tensor_list forward(
      torch::autograd::AutogradContext*,
      Tensor x) {
    return {x * 2, x * 3};
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::tensor_list gradients) {
    return {gradients[0] * 2 + gradients[1] * 3};
  }
};

TEST(CasesB, B10_OneTensorIsTheGradientOfTwoResultsOfANode) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) -> Pair {
      auto both = Two::apply(x);
      return {both[0], both[1]};
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [a, b] = f(x);
      auto g = torch::randn({3});
      torch::autograd::backward({a, b}, {g, i < 2 ? g : torch::randn({3})});
      run.note_grad("x", x);
    }
  });
  // Two traces, for a custom backward runs the user's code.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

// A gradient that is a view of another is not added to in place in eager mode,
// which shows where several strides are the same memory.
TEST(CasesB, B10_AGradientThatIsAViewOfAnother) {
  for (const int64_t size : {0, 1, 2}) {
    const auto report = expect_same([size](Trial& run) {
      auto f = run.compile_function([](Tensor x) {
        auto all = x.exp();
        auto turned = x.t().clone();
        auto sum = x.sum(); // Its gradient comes first.
        return std::make_tuple(all, turned, sum);
      });
      for (int i = 0; i < 6; ++i) {
        auto x = torch::randn({size, 4}).requires_grad_();
        auto [all, turned, sum] = f(x);
        const auto gradients = torch::autograd::grad(
            {all, turned * 2, sum * 3},
            {x},
            {torch::randn({size, 4}),
             torch::randn({4, size}),
             torch::ones({})});
        run.note("gradient", gradients.at(0));
      }
    });
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 1 && program_calls == 5);
    EXPECT_COUNTERS(report.total, program_backwards == 5);
  }
}

// The engine adds gradients of which the first is a lazy conjugate.
TEST(CasesB, B10_SumsOfConjugatedGradients) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto s = x.sum();
      return (x + s) * s.conj() + torch::imag(x.conj()).sum();
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({5}, torch::kComplexFloat).requires_grad_();
      auto y = f(x);
      y.backward(torch::randn_like(y));
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_backwards == 4);
}

} // namespace
} // namespace temper::testing
