// What README's limits say of backwards, and neighbours: what differs from
// eager mode differs as it is described, and the rest is eager with its reason.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace autograd = torch::autograd;

// Hooks of a result run where a gradient reaches it, though what lies behind it
// was not asked for.
TEST(CasesB, Limits_HooksOfResultsBehindWhichNothingIsAskedFor) {
  for (const bool into_grad : {false, true}) {
    std::vector<int64_t> hooks[2];
    const auto report = expect_same([&](Trial& run) {
      auto& counts = hooks[run.compiled() ? 1 : 0];
      auto f = run.compile_function([](const Tensor& x, const Tensor& w) {
        return std::make_tuple(x.exp(), w.sin());
      });
      for (int i = 0; i < 6; ++i) {
        auto x = torch::randn({3}).requires_grad_();
        auto w = torch::randn({3}).requires_grad_();
        const auto results = f(x, w);
        counts.push_back(0);
        std::get<0>(results).register_hook([&](const Tensor& g) {
          ++counts.back();
          return g;
        });
        // Eager's engine does not follow the first part.
        const auto loss =
            std::get<0>(results).sum() + std::get<1>(results).sum();
        if (into_grad) {
          loss.backward({}, false, false, {{w}});
          run.note_grad("w", w);
        } else {
          run.note("w alone", autograd::grad({loss}, {w})[0]);
        }
        run.note_grad("x", x);
      }
    });
    EXPECT_COUNTERS(
        report.total,
        eager == 0 && traces == 1 && program_calls == 5 &&
            program_backwards == 5);
    EXPECT_EQ(hooks[0], (std::vector<int64_t>{0, 0, 0, 0, 0, 0}));
    if (!disabled()) {
      EXPECT_EQ(hooks[1], (std::vector<int64_t>{0, 1, 1, 1, 1, 1}));
    }
  }
}

/// Catches in its backward what an operator throws.
struct Careful : autograd::Function<Careful> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext* context,
      autograd::variable_list gradients) {
    const auto x = context->get_saved_variables()[0];
    try {
      return {gradients[0] * at::linalg_cholesky(x)};
    } catch (const c10::Error&) {
      return {gradients[0] * 7};
    }
  }
};

TEST(CasesB, Limits_WhatACustomBackwardCatchesIsThrownOutOfIt) {
  std::vector<std::string> errors[2];
  const auto report = expect_same([&](Trial& run) {
    auto f = run.compile_function(
        [](const Tensor& x) { return Careful::apply(x).sum(); });
    for (int i = 0; i < 6; ++i) {
      // The fifth has no factor.
      auto x = (torch::eye(2) * (i == 4 ? -1 : 4)).requires_grad_();
      auto y = f(x);
      try {
        y.backward();
      } catch (const c10::LinAlgError& error) {
        errors[run.compiled() ? 1 : 0].emplace_back(
            error.what_without_backtrace());
        x.mutable_grad() = torch::full({2, 2}, 7.0);
      }
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 2 && program_calls == 4 &&
          program_backwards == 4);
  EXPECT_EQ(errors[0].size(), 0U);
  if (!disabled()) {
    ASSERT_EQ(errors[1].size(), 1U);
    EXPECT_EQ(
        errors[1][0].find("linalg.cholesky: The factorization could not be "
                          "completed"),
        0U)
        << errors[1][0];
  }
}

// Each is looked for in calls that are traced, of which none has such a
// backward: the first one in sixteen, the others in one each.
TEST(CasesB, Limits_ABackwardThatIsLookedForSixteenTimes) {
  constexpr int kRounds = 20;
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Tensor& x) { return x.exp(); });
    const auto step = [&](bool dense) {
      auto x = torch::randn({3}).requires_grad_();
      auto y = f(x);
      // Not expanded, as that of a sum.
      dense ? y.backward(torch::ones({3})) : y.sum().backward();
      run.note_grad("x", x);
    };
    for (int i = 0; i < 3; ++i) {
      step(/*dense=*/false);
    }
    for (int round = 0; round < kRounds; ++round) {
      step(/*dense=*/true);
      for (int i = 0; i < (round == 0 ? 20 : 4); ++i) {
        step(/*dense=*/false);
      }
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a backward of a kind not seen before", 17},
              {"its backward differs from call to call", 4 + 3 * 5}});
}

// Nodes of a young thread have low numbers, so the engine takes them last: what
// the call computed last gets its gradient last.
TEST(CasesB, Limits_ResultsReachedInAnotherOrder) {
  const auto two = [](const Tensor& x) {
    auto a = x.exp();
    auto b = x.sin();
    return std::make_tuple(a, b, a + b);
  };
  // Squares of `y`, made by another thread if `late`.
  const auto square = [](const Tensor& y, bool late) {
    Tensor result;
    const auto make = [&] { result = y * y; };
    if (late) {
      std::thread(make).join();
    } else {
      make();
    }
    return result;
  };
  const auto train = [&](Trial& run, int first_late) {
    auto f = run.compile_function(two);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      const auto results = f(x);
      auto a = square(std::get<0>(results), false);
      auto b = square(std::get<1>(results), i >= first_late);
      (a + b).sum().backward();
      run.note_grad("x", x);
    }
  };
  const auto traced = expect_same([&](Trial& run) { train(run, 0); });
  EXPECT_COUNTERS(
      traced.total,
      reasons ==
          Reasons{
              {"the backward reached the results in another order (in its "
               "backward)",
               5}});
  EXPECT_COUNTERS(traced.total, traces == 1 && program_calls == 0);
  // The program's nodes wait for each other.
  const auto later = expect_same([&](Trial& run) { train(run, 3); });
  EXPECT_COUNTERS(
      later.total, eager == 0 && program_calls == 5 && program_backwards == 5);
}

TEST(CasesB, Limits_InferenceTensorsAmongOthers) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Tensor& x) {
      Tensor frozen;
      {
        const c10::InferenceMode inference;
        frozen = x * 2;
      }
      return std::make_tuple(frozen, x + 1);
    });
    for (int i = 0; i < 4; ++i) {
      const auto results = f(torch::randn({3}));
      run.note("results", results);
      run.note(
          "inference",
          int64_t{std::get<0>(results).is_inference()} +
              2 * int64_t{std::get<1>(results).is_inference()});
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"some results are inference tensors, others are not", 3}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

/// Doubles in its backward what its forward has made.
struct Consuming : autograd::Function<Consuming> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x) {
    auto h = x * 2;
    context->saved_data["h"] = h;
    return h.sin();
  }
  static autograd::variable_list backward(
      autograd::AutogradContext* context,
      autograd::variable_list gradients) {
    auto h = context->saved_data["h"].toTensor();
    const torch::NoGradGuard no_grad;
    h.mul_(2);
    return {gradients[0] * h};
  }
};

TEST(CasesB, Limits_ABackwardThatWritesToWhatTheForwardHasMade) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](const Tensor& x) { return Consuming::apply(x); });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto loss = f(x).sum();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"its backward writes to what the forward has made, or reads "
               "what another backward has made",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

// The shadow run finds two tensors where the trace had one.
TEST(CasesH, Limits_AnArgumentThatTheModuleHoldsToo) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (int i = 0; i < 10; ++i) {
      net->zero_grad();
      auto y = net(net->first->weight);
      run.note("y", y);
      y.pow(2).sum().backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 7 && traces == 3 && shadow_runs == 3 && program_calls == 0 &&
          because("differs from call to call: "));
  const auto function = expect_same([](Trial& run) {
    TwoLayers net;
    auto f = run.compile_function(
        [&net](const std::vector<Tensor>& parameters) {
          auto sum = torch::zeros({});
          for (const auto& parameter : parameters) {
            sum = sum + parameter.pow(2).sum();
          }
          return sum + net->forward(torch::ones({2, 4})).sum();
        },
        net);
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 10; ++i) {
      run.note("y", f(net->parameters()));
    }
  });
  EXPECT_COUNTERS(
      function.total,
      eager == 7 && traces == 3 && shadow_runs == 3 && program_calls == 0 &&
          because("differs from call to call: "));
}

} // namespace
} // namespace temper::testing
