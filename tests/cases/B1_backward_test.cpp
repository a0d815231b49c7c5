// Cases B1 to B8: second derivatives, repeated and partial backward passes,
// in-place changes, hooks.
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

TEST(CasesB, B1_SecondDerivative) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return x.pow(4).sum(); });
    for (int i = 0; i < 4; ++i) {
      auto x = torch::tensor({0.5, 1.5, 2.5, 3.5}).requires_grad_();
      auto first = torch::autograd::grad({f(x)}, {x}, {}, true, true)[0];
      run.note("first", first);
      auto second = torch::autograd::grad({first.sum()}, {x})[0];
      run.note("second", second);
      EXPECT_TRUE(
          torch::equal(second, torch::tensor({3.0, 27.0, 75.0, 147.0})));
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"double backward (create_graph) through the call", 3}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesB, B1_FirstDerivativesAloneThenSecond) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor x) { return (x.sin() * x.exp()).sum(); });
    auto x = torch::randn({5}).requires_grad_();
    for (int i = 0; i < 8; ++i) {
      const bool twice = i >= 4 && i % 2 == 0;
      auto g = torch::autograd::grad({f(x)}, {x}, {}, twice, twice)[0];
      run.note("first", g);
      if (twice) {
        g.pow(2).sum().backward();
        run.note_grad("x", x);
      }
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"double backward (create_graph) through the call", 4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 3);
}

TEST(CasesB, B1_GradientPenaltyStep) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    torch::optim::SGD steps(net->parameters(), 0.1);
    for (int i = 0; i < 4; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      steps.zero_grad();
      auto y = net(x);
      auto slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
      auto loss = y.pow(2).mean() + (slope.norm(2, 1) - 1).pow(2).mean();
      loss.backward();
      steps.step();
      run.note("loss", loss);
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"double backward (create_graph) through the call", 3}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesB, B2_FakeDetachedThenNot) {
  const auto report = expect_same([](Trial& run) {
    torch::nn::Linear generator(2, 4);
    TwoLayers critic;
    run.compile(critic);
    for (int i = 0; i < 5; ++i) {
      generator->zero_grad();
      critic->zero_grad();
      auto fake = generator(torch::randn({3, 2}));
      critic(fake.detach()).sum().backward();
      run.note_grad("generator", generator->weight);
      run.note_module("critic", *critic);
      critic(fake).sum().backward();
      run.note_grad("generator", generator->weight);
      run.note_module("critic", *critic);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 8);
}

TEST(CasesB, B3_RetainGraph) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      net->zero_grad();
      auto loss = net(x).pow(2).sum();
      loss.backward({}, /*retain_graph=*/true);
      auto once = net->first->weight.grad().clone();
      loss.backward();
      EXPECT_TRUE(torch::equal(net->first->weight.grad(), 2 * once));
      run.note_module("net", *net);
      run.attempt("third", [&] { loss.backward(); });
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 3);
  // Two a call; the third finds no graph.
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

TEST(CasesB, B3_TwoBackwardsOfOneOutput) {
  // The second goes through the same call but another loss.
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      auto y = net(x);
      y.sum().backward({}, true);
      y.pow(2).sum().backward();
      run.note_grad("x", x);
      run.attempt("third", [&] { y.sum().backward(); });
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 3);
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

TEST(CasesB, B4_GradientBetweenTwoOutputs) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) -> Pair {
      auto d = 2 * x;
      return {d, (d * d).sum()};
    });
    auto x = torch::randn({4}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      auto [d, z] = f(x);
      run.attempt("grad", [&, d = d, z = z] {
        auto g = torch::autograd::grad({z}, {d}, {}, true, false, true)[0];
        run.note("of z by d", g);
        EXPECT_TRUE(g.defined() && torch::equal(g, 2 * d));
      });
      run.note("of z by x", torch::autograd::grad({z}, {x})[0]);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 3);
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

TEST(CasesB, B4_OneOutputFeedsAnother) {
  // An output that is used further, in and outside of the call.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) -> Pair {
      auto h = torch::tanh(x.matmul(w));
      return {h, h.exp().sum()};
    });
    auto x = torch::randn({3, 4});
    auto w = torch::randn({4, 2}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      auto [h, s] = f(x, w);
      (h.sum() * s).backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 3);
  EXPECT_COUNTERS(report.total, program_backwards == 3);
}

TEST(CasesB, B5_BackwardThroughOneOutput) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w, Tensor v) -> Pair {
      return {w * 2, v * 3};
    });
    for (int i = 0; i < 5; ++i) {
      auto w = torch::randn({3}).requires_grad_();
      auto v = torch::randn({3}).requires_grad_();
      auto [a, b] = f(w, v);
      a.sum().backward();
      EXPECT_FALSE(v.grad().defined());
      run.note_grad("w", w);
      run.note_grad("v", v);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B5_EachSubsetOfOutputs) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w, Tensor v) {
      auto both = w * v;
      return std::make_tuple(w.exp(), both, both.sum() + v, v.detach());
    });
    for (int i = 0; i < 24; ++i) {
      auto w = torch::randn({3}).requires_grad_();
      auto v = torch::randn({3}).requires_grad_(i % 5 != 4);
      auto [a, b, c, d] = f(w, v);
      auto loss = torch::zeros({});
      loss = i & 1 ? loss + a.sum() : loss;
      loss = i & 2 ? loss + b.pow(2).sum() : loss;
      loss = i & 4 ? loss + c.sum() : loss;
      run.note("d", d);
      if (loss.requires_grad()) {
        loss.backward();
      }
      run.note_grad("w", w);
      run.note_grad("v", v);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 6}});
  EXPECT_COUNTERS(report.total, traces == 16 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 2);
}

TEST(CasesB, B6_InputChangedBeforeBackward) {
  const auto report = expect_same([](Trial& run) {
    auto f =
        run.compile_function([](Tensor x, Tensor w) { return x.matmul(w); });
    auto w = torch::randn({4, 2}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      auto x = torch::randn({3, 4});
      auto y = f(x, w);
      x.add_(1);
      EXPECT_FALSE(run.attempt("backward", [&] { y.sum().backward(); }));
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"the backward of a traced call threw", 2}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

// A sum does not need its operands, exp needs its result, mul the other.
auto three_products() {
  return
      [](Tensor x, Tensor w) { return std::make_tuple(x + w, w.exp(), x * w); };
}

TEST(CasesB, B6_WhatMayBeChangedAndWhatNot) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(three_products());
    for (int i = 0; i < 18; ++i) {
      auto x = torch::randn({3});
      auto w = torch::randn({3}).requires_grad_();
      auto outputs = f(x, w);
      std::vector<Tensor> y = {
          std::get<0>(outputs), std::get<1>(outputs), std::get<2>(outputs)};
      const auto& one = y[static_cast<size_t>(i % 3)];
      // Of the error's text, "which is output 0 of Exp" is not promised.
      const auto raises = [&] {
        try {
          one.sum().backward({}, true);
        } catch (const c10::Error& error) {
          return int64_t{
              std::string(error.what()).find("modified by an inplace") !=
              std::string::npos};
        }
        return int64_t{0};
      };
      if (i >= 9) {
        x.mul_(2);
      }
      run.note("after the input", raises());
      if (i >= 9) {
        y[1].detach().mul_(2);
      }
      run.note("after the output", raises());
      run.note_grad("w", w);
    }
  });
  // Three kinds of backward; those that raise through a call that does not know
  // the kind run the code again as well.
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 4}});
  EXPECT_COUNTERS(report.total, traces == 5 && program_calls == 13);
  EXPECT_COUNTERS(report.total, program_backwards == 22);
}

TEST(CasesB, B6_AnInputChangedBeforeAnUnknownBackward) {
  // A limit: what the code was given is gone, so it can't run again.
  if (disabled()) {
    return;
  }
  auto f = temper::compile(three_products());
  auto w = torch::randn({3}).requires_grad_();
  const auto step = [&](bool change, int which) {
    auto x = torch::randn({3});
    auto outputs = f(x, w);
    if (change) {
      x.mul_(2);
    }
    (which == 0 ? std::get<0>(outputs) : std::get<2>(outputs)).sum().backward();
  };
  for (int i = 0; i < 3; ++i) {
    step(false, 0);
  }
  step(true, 0);
  EXPECT_COUNTERS(temper::counters_of(f), eager == 0 && program_calls == 3);
  try {
    step(true, 2);
    ADD_FAILURE() << "no error";
  } catch (const temper::Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("input 'argument 0' of a call of '"), std::string::npos)
        << text;
    EXPECT_NE(
        text.find(
            "' has been modified by an inplace operation before a backward "
            "of a kind that has not been seen yet"),
        std::string::npos)
        << text;
  }
  step(false, 2); // Traced: learns it.
  step(true, 0);
  EXPECT_COUNTERS(temper::counters_of(f), traces == 2 && program_calls == 5);
  EXPECT_COUNTERS(temper::counters_of(f), program_backwards == 4);
}

TEST(CasesB, B6_WhatOneOperatorNeeds) {
  // A sum needs nothing, exp its result, a product the other operand.
  for (int which = 0; which < 3; ++which) {
    const auto report = expect_same([which](Trial& run) {
      auto f = run.compile_function([which](Tensor x, Tensor w) {
        return which == 0 ? x + w : which == 1 ? w.exp() : x * w;
      });
      for (int i = 0; i < 6; ++i) {
        auto x = torch::randn({3});
        auto w = torch::randn({3}).requires_grad_();
        auto y = f(x, w);
        if (i % 2 == 1) {
          x.mul_(2);
        }
        run.attempt("after the input", [&] { y.sum().backward({}, true); });
        if (i > 3) {
          y.detach().mul_(2);
        }
        // Of the error's text, "which is output 0 of Exp" is not promised.
        bool raised = false;
        try {
          y.sum().backward({}, true);
        } catch (const c10::Error&) {
          raised = true;
        }
        run.note("raised after the output", int64_t{raised});
        run.note_grad("w", w);
      }
    });
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 1 && program_calls == 5);
    EXPECT_COUNTERS(report.total, program_backwards == 10);
  }
}

TEST(CasesB, B6_WeightChangedBeforeBackward) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (int i = 0; i < 4; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = net(x);
      {
        const torch::NoGradGuard no_grad;
        net->second->weight.add_(1);
      }
      run.attempt("backward", [&] { y.sum().backward(); });
      run.note_module("net", *net);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"the backward of a traced call threw", 2}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

// As a user meets it: in a training loop that has been compiled for long.
TEST(CasesB, B6_WeightOfAnAdmittedModuleChangedBeforeBackward) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (int i = 0; i < 9; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = net(x);
      // Which backward reads the first one's weight, the second's, none.
      if (i >= 3 && i % 3 < 2) {
        const torch::NoGradGuard no_grad;
        (i % 3 == 0 ? net->first : net->second)->weight.add_(1);
      } else if (i >= 3) {
        const torch::NoGradGuard no_grad;
        net->second->bias.add_(1);
      }
      net->zero_grad();
      // What the error says of the tensor's history is not promised, nor which
      // gradients have come before it.
      std::string error;
      try {
        y.sum().backward();
      } catch (const c10::Error& thrown) {
        error = thrown.what();
        net->zero_grad();
      }
      EXPECT_EQ(
          error.find("modified by an inplace operation") != std::string::npos,
          i >= 3 && i % 3 < 2)
          << i << ' ' << error;
      run.note("threw", static_cast<int64_t>(!error.empty()));
      run.note("y", y);
      run.note_module("net", *net);
      if (error.empty()) {
        run.note_grad("x", x);
      }
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && admissions == 1 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 8);
}

TEST(CasesB, B7_OutputOfAnInPlaceView) {
  const auto report = expect_same([](Trial& run) {
    auto f =
        run.compile_function([](Tensor x) { return (2 * x).unsqueeze_(0); });
    for (int i = 0; i < 4; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto y = f(x);
      y.mul_(2);
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
      EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 4.0)));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 3);
  EXPECT_COUNTERS(report.total, program_backwards == 3);
}

TEST(CasesB, B7_OutputsModifiedAfterwards) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = 2 * x;
      return std::make_tuple(y, y.t_(), (x + 1).view({-1}), x.exp());
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({2, 3}).requires_grad_();
      auto [a, b, c, d] = f(x);
      run.attempt("view", [&, c = c] { c.mul_(3); });
      run.attempt("both", [&, a = a] { a.mul_(2); });
      run.note("a", a);
      run.note("b", b);
      run.note("c", c);
      run.attempt("backward", [&, b = b, c = c] {
        (b.sum() + c.sum()).backward({}, true);
      });
      run.attempt("saved", [&, d = d] {
        d.add_(1);
        d.sum().backward();
      });
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 1);
  EXPECT_COUNTERS(report.total, program_backwards == 1);
}

TEST(CasesB, B7_ViewsModifiedAfterwards) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = 2 * x;
      return std::make_tuple(y, y.t_(), (x + 1).view({-1}), x.exp());
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({2, 3}).requires_grad_();
      auto all = f(x);
      run.attempt("view", [&] { std::get<2>(all).mul_(3); });
      run.attempt("both", [&] { std::get<0>(all).mul_(2); });
      run.note("all", all);
      run.attempt("backward", [&] {
        (std::get<1>(all).sum() + std::get<2>(all).sum()).backward();
      });
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B8_HookOnAnIntermediate) {
  // Guarded calls do not run the code that registers it: it must not be lost.
  const auto report = expect_same([](Trial& run) {
    static int64_t fired;
    fired = 0;
    auto f = run.compile_function([](Tensor x) {
      auto h = x.exp();
      if (h.requires_grad()) {
        h.register_hook([](Tensor g) {
          ++fired;
          return g * 2;
        });
      }
      return h.sin().sum() + h.cos().sum();
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      f(x).backward();
      run.note_grad("x", x);
      run.note("fired", fired);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"a hook on an intermediate tensor (ExpBackward0)", 5}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesB, B8_HooksOutside) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    int64_t on_output = 0, on_weight = 0, on_input = 0;
    net->first->weight.register_hook([&](Tensor g) {
      ++on_weight;
      return g * 0.5;
    });
    for (int i = 0; i < 5; ++i) {
      net->zero_grad();
      auto leaf = torch::randn({3, 4}).requires_grad_();
      auto x = leaf * 1;
      x.register_hook([&](const Tensor&) { ++on_input; });
      x.retain_grad();
      auto y = net(x);
      y.register_hook([&](Tensor g) {
        ++on_output;
        return g * 3;
      });
      y.retain_grad();
      (y.sum() + y.pow(2).sum()).backward();
      run.note("x.grad", x.grad());
      run.note("y.grad", y.grad());
      run.note_grad("leaf", leaf);
      run.note_module("net", *net);
      run.note("fired", on_output * 100 + on_weight * 10 + on_input);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

} // namespace
} // namespace temper::testing
