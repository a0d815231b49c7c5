// Cases B3 to B5 further: which gradients come, in which order they are summed,
// what they reach, and how often a graph can be used.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

// Makes zeros of a gradient that is not there, as custom functions do.
struct Pass : torch::autograd::Function<Pass> {
  static Tensor forward(torch::autograd::AutogradContext*, Tensor x) {
    return x.clone();
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext*,
      torch::autograd::tensor_list gradients) {
    return {gradients[0] * 2};
  }
};

TEST(CasesB, B5_PatternsThatAlternateAreAllCompiled) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w, Tensor v) {
      auto both = w * v;
      return std::make_tuple(w.exp(), both.sin(), both.cos());
    });
    for (int i = 0; i < 60; ++i) {
      if (i == 40) {
        run.steady();
      }
      auto w = torch::randn({3}).requires_grad_();
      auto v = torch::randn({3}).requires_grad_();
      auto [a, b, c] = f(w, v);
      const int which = i % 5;
      auto loss = which == 0 ? a.sum()
          : which == 1       ? b.sum()
          : which == 2       ? c.sum()
          : which == 3       ? (a + b).sum()
                             : (a + b + c).sum();
      loss.backward();
      run.note_grad("w", w);
      run.note_grad("v", v);
    }
  });
  EXPECT_COUNTERS(report.steady, eager == 0 && program_backwards == 20);
  EXPECT_COUNTERS(report.steady, program_calls == 20 && traces == 0);
  // Each kind but the first comes unknown once, and is then traced.
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 4}});
  EXPECT_COUNTERS(report.total, traces == 10 && program_calls == 50);
  EXPECT_COUNTERS(report.total, program_backwards == 46);
}

TEST(CasesB, B5_MoreKindsThanAreKept) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w) {
      return std::make_tuple(w.exp(), w.sin(), w.cos(), w.tanh());
    });
    for (int i = 0; i < 90; ++i) {
      auto w = torch::randn({3}).requires_grad_();
      const auto [a, b, c, d] = f(w);
      auto loss = torch::zeros({});
      const int which = 1 + i % 15;
      for (const auto& [bit, y] :
           {std::pair(1, a),
            std::pair(2, b),
            std::pair(4, c),
            std::pair(8, d)}) {
        loss = (which & bit) != 0 ? loss + y.sum() : loss;
      }
      loss.backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a backward of a kind not seen before", 8},
              {"its backward differs from call to call", 71}});
  EXPECT_COUNTERS(report.total, traces == 10 && program_calls == 9);
  EXPECT_COUNTERS(report.total, program_backwards == 1);
}

TEST(CasesB, B5_TwoLossesOneAfterTheOther) {
  // As an actor and a critic: two backwards a call, through disjoint parts.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w, Tensor v) -> Pair {
      return {x.matmul(w).tanh(), x.matmul(v).exp()};
    });
    auto w = torch::randn({4, 2}).requires_grad_();
    auto v = torch::randn({4, 2}).requires_grad_();
    for (int i = 0; i < 12; ++i) {
      if (i == 6) {
        run.steady();
      }
      auto [actor, critic] = f(torch::randn({3, 4}), w, v);
      actor.sum().backward();
      run.note_grad("w", w);
      run.note_grad("v", v);
      critic.sum().backward();
      run.note_grad("w", w);
      run.note_grad("v", v);
      run.attempt("again", [&, actor = actor] { actor.sum().backward(); });
    }
  });
  EXPECT_COUNTERS(report.steady, program_calls == 6 && program_backwards == 12);
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 11);
}

TEST(CasesB, B5_AnUnknownBackwardOfOneTensorPassedTwice) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor a, Tensor b) -> Pair {
      return {torch::cat({a, b}), a * b};
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [c, p] = f(x, x);
      (i < 3 ? p : i < 5 ? c : c.sum() + p).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 3);
}

TEST(CasesB, B3_ASharedPartCanBeUsedOnce) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) -> Pair {
      auto shared = x.exp();
      return {shared.sin(), shared.cos()};
    });
    auto x = torch::randn({3}).requires_grad_();
    for (int i = 0; i < 16; ++i) {
      auto [a, b] = f(x);
      const bool retain = i % 3 == 0;
      run.attempt("first", [&, a = a, b = b] {
        (i % 2 == 0 ? a : b).sum().backward({}, retain);
      });
      run.attempt("second", [&, a = a, b = b] {
        (i % 2 == 0 ? b : a).sum().backward();
      });
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 15);
  EXPECT_COUNTERS(report.total, program_backwards == 20);
}

TEST(CasesB, B5_WhatIsNotReachedIsNotVisited) {
  // No hook is called, no function sees zeros, no gradient becomes defined.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor a, Tensor b, Tensor v) -> std::tuple<Tensor, Tensor, Tensor> {
          return {a * 2, b * 3, v.exp()};
        });
    int64_t calls = 0;
    for (int i = 0; i < 18; ++i) {
      auto leaf = torch::randn({3}).requires_grad_();
      auto v = torch::randn({3}).requires_grad_();
      v.register_hook([&](Tensor gradient) {
        ++calls;
        return gradient * 2;
      });
      auto h = leaf.sin();
      auto a = h.tanh();
      auto b = Pass::apply(i % 2 == 0 ? leaf * 1 : h);
      b.register_hook([&](Tensor gradient) {
        calls += 100;
        return gradient + 1;
      });
      auto [first, second, third] = f(a, b, v);
      const int which = i % 3;
      auto loss = which == 0 ? first.sum()
          : which == 1       ? first.sum() + third.sum()
                             : (h * 5).sum() + first.sum();
      loss.backward();
      run.note("calls", calls);
      run.note_grad("leaf", leaf);
      run.note_grad("v", v);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 14);
  EXPECT_COUNTERS(report.total, program_backwards == 13);
}

TEST(CasesB, B5_GradientsOfSomeInputs) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor x, Tensor w) { return (x.matmul(w).tanh() * w.sum()); });
    for (int i = 0; i < 24; ++i) {
      if (i == 16) {
        run.steady();
      }
      auto x = torch::randn({3, 4}).requires_grad_();
      auto w = torch::randn({4, 2}).requires_grad_();
      auto y = f(x, w).sum();
      if (i % 4 == 0) {
        run.note("x", torch::autograd::grad({y}, {x}));
      } else if (i % 4 == 1) {
        run.note("w", torch::autograd::grad({y}, {w}));
      } else if (i % 4 == 2) {
        run.note("both", torch::autograd::grad({y}, {w, x}));
      } else {
        run.attempt("unused", [&] {
          torch::autograd::grad({y}, {torch::ones({1}).requires_grad_()});
        });
        y.backward({}, false, false, std::vector<Tensor>{w});
        run.note_grad("w", w);
        run.note_grad("x", x);
      }
    }
  });
  EXPECT_COUNTERS(report.steady, program_calls == 8 && program_backwards == 8);
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 20);
  EXPECT_COUNTERS(report.total, program_backwards == 18);
}

TEST(CasesB, B4_SumsAreAddedInEagersOrder) {
  // Uses inside and outside of the call: r + a + b, not r + (a + b).
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) -> Pair {
      auto h = x.matmul(w).tanh();
      auto g = h.matmul(w).sin();
      return {h, (g * h).matmul(w).exp() + w.sum() + h.cos()};
    });
    for (int i = 0; i < 10; ++i) {
      auto x = torch::randn({5, 5}).requires_grad_();
      auto w = torch::randn({5, 5}).requires_grad_();
      auto scaled = w * 1.5;
      auto [h, y] = f(x, scaled);
      auto loss = y.sum() + h.pow(3).sum() + scaled.pow(3).sum() +
          (x.sin() * scaled).sum() + x.pow(2).sum();
      loss.backward();
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 9);
  EXPECT_COUNTERS(report.total, program_backwards == 9);
}

TEST(CasesB, B4_TiedWeightsWithAPenaltyOutside) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (int i = 0; i < 8; ++i) {
      net->zero_grad(i % 2 == 0);
      auto y = net(torch::randn({6, 4}));
      auto loss = net(y.matmul(torch::randn({y.size(1), 4}))).pow(2).sum();
      for (const auto& p : net->parameters()) {
        loss = loss + p.pow(2).sum() * 0.1;
      }
      loss.backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 14);
  EXPECT_COUNTERS(report.total, program_backwards == 14);
}

TEST(CasesB, B1_DoubleBackwardThroughOutputsThatDependOnEachOther) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) -> Pair {
      auto d = x.sin();
      return {d, (d * d * x).sum()};
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({4}).requires_grad_();
      auto [d, z] = f(x);
      const bool twice = i >= 5;
      auto g = torch::autograd::grad(
          {z, d.sum()}, {x}, {}, /*retain_graph=*/twice, twice)[0];
      run.note("g", g);
      if (twice) {
        g.pow(2).sum().backward();
        run.note_grad("x", x);
      }
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{// Of the second derivative, which comes back to the results.
                  {"a backward of a kind not seen before", 1},
                  {"double backward (create_graph) through the call", 3}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B3_ABackwardThatThrowsLeavesTheGraphWhole) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w, Tensor v) -> Pair {
      return {w.exp(), v.exp()};
    });
    for (int i = 0; i < 8; ++i) {
      auto leaf = torch::randn({3}).requires_grad_();
      auto v = torch::randn({3}).requires_grad_();
      auto w = leaf * 2;
      bool fail = i >= 3;
      w.register_hook(
          [&](const Tensor&) { TORCH_CHECK(!fail, "the hook's own error"); });
      auto [a, b] = f(w, v);
      run.attempt("throws", [&, a = a] { a.sum().backward({}, true); });
      fail = false;
      (a.sum() + b.sum()).backward({}, true);
      b.sum().backward();
      run.note_grad("leaf", leaf);
      run.note_grad("v", v);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 21);
}

TEST(CasesB, B7_AnOutputChangedBeforeAnUnknownBackward) {
  // exp needs its result: eager's error, also from a run of the code again.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) -> Pair {
      return {x.exp(), x.sin()};
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [a, b] = f(x);
      if (i >= 3) {
        b.detach().mul_(2); // Nobody needs it.
      }
      if (i >= 5) {
        a.detach().mul_(2);
      }
      bool raised = false;
      try {
        (i < 4 ? b : a + b).sum().backward();
      } catch (const c10::Error&) {
        raised = true;
      }
      run.note("raised", int64_t{raised});
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 3);
}

TEST(CasesB, B6_TwoTrainingForwardsOfBatchNormBeforeABackward) {
  const auto report = expect_same([](Trial& run) {
    auto mean = torch::zeros({3});
    auto variance = torch::ones({3});
    auto f = run.compile_function(
        [&](Tensor x) {
          return torch::batch_norm(
              x, {}, {}, mean, variance, true, 0.1, 1e-5, false);
        },
        mean,
        variance);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({4, 3}).requires_grad_();
      auto first = f(x);
      auto second = f(x * 2);
      {
        const torch::NoGradGuard no_grad;
        f(x);
      }
      (first.pow(3).sum() + second.exp().sum()).backward();
      run.note_grad("x", x);
      run.note("mean", mean);
      run.note("version", static_cast<int64_t>(mean._version()));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 3 && program_calls == 15);
  EXPECT_COUNTERS(report.total, program_backwards == 10);
}

TEST(CasesB, B8_HooksOfSeveralResults) {
  // In the order of the nodes; not for a result without a gradient.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor a, Tensor b) {
      return std::make_tuple(a.exp(), a.sin(), b * 2);
    });
    std::string order;
    for (int i = 0; i < 12; ++i) {
      auto a = torch::randn({3}).requires_grad_();
      auto b = torch::randn({3}).requires_grad_();
      auto [x, y, z] = f(a, b);
      const auto hook = [&order](const char* name) {
        return [&order, name](Tensor gradient) {
          order += name;
          return gradient * 2;
        };
      };
      z.register_hook(hook("z"));
      x.register_hook(hook("x"));
      y.register_hook(hook("y"));
      y.retain_grad();
      if (i % 3 == 0) {
        (x.sum() + z.sum()).backward();
      } else if (i % 3 == 1) {
        (y + x + z).sum().backward();
      } else {
        y.sum().backward();
      }
      run.note("order", order);
      run.note("y.grad", y.grad());
      run.note_grad("a", a);
      run.note_grad("b", b);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  EXPECT_COUNTERS(report.total, traces == 5 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B8_HooksOfParametersInEagersOrder) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    std::string order;
    for (const auto& entry : net->named_parameters()) {
      entry.value().register_hook([&order, name = entry.key()](Tensor g) {
        order += name + " ";
        return g + torch::randn_like(g) * 0.1;
      });
    }
    for (int i = 0; i < 6; ++i) {
      net->zero_grad();
      net(torch::randn({3, 4})).pow(2).sum().backward();
      run.note("order", order);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B5_WhatIsBehindIsVisitedForItsOwnGradientAlone) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor a, Tensor b) -> Pair {
      return {a.sin(), b.exp()};
    });
    int64_t calls = 0;
    for (int i = 0; i < 9; ++i) {
      auto leaf = torch::randn({3}).requires_grad_();
      auto b = torch::randn({3}).requires_grad_();
      auto h = Pass::apply(leaf);
      auto a = Pass::apply(h);
      a.register_hook([&calls](const Tensor&) { ++calls; });
      auto [first, second] = f(a, b);
      if (i < 3) {
        (first + second).sum().backward();
      } else {
        (second.sum() + (h * 3).sum()).backward();
      }
      run.note("calls", calls);
      run.note_grad("leaf", leaf);
      run.note_grad("b", b);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

TEST(CasesB, B11_AutocastAtTheBackwardAlone) {
  const auto report = expect_same([](Trial& run) {
    auto f =
        run.compile_function([](Tensor x, Tensor w) { return x.mm(w).tanh(); });
    for (int i = 0; i < 12; ++i) {
      auto x = torch::randn({4, 4}).requires_grad_();
      auto w = torch::randn({4, 4}).requires_grad_();
      auto y = f(x, w);
      at::autocast::set_autocast_enabled(at::kCPU, i % 3 == 1);
      run.attempt("backward", [&] { y.sum().backward(); });
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

TEST(CasesB, B3_AnomalyModeAtTheBackward) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return x.relu().sqrt(); });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::tensor({-1.0, 4.0}).requires_grad_();
      auto y = f(x);
      torch::autograd::AnomalyMode::set_enabled(i == 4);
      bool raised = false;
      try {
        (y * 0).sum().backward();
      } catch (const std::exception& error) {
        raised = std::string(error.what()).find("SqrtBackward0") !=
            std::string::npos;
      }
      torch::autograd::AnomalyMode::set_enabled(false);
      run.note("raised", int64_t{raised});
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  // Under anomaly mode the code runs again.
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B3_TwiceWithoutRetainThroughWhatWasNeverVisited) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      return std::make_tuple(x.exp(), x * 2 + 1, x.sum(0) + 1);
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [a, b, c] = f(x);
      for (int again = 0; again < 2; ++again) {
        run.attempt("backward", [&, a = a, b = b, c = c] {
          (i < 5 ? b : i == 5 ? a : i == 6 ? c : a + c).sum().backward();
        });
      }
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 4}});
  EXPECT_COUNTERS(report.total, traces == 2);
  EXPECT_COUNTERS(report.total, program_calls == 6 && program_backwards == 8);
  // Compiled forward-only, since no backward came.
  const auto forward_only = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return x.sum(0) + 1; });
    for (int i = 0; i < 14; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto y = f(x);
      for (int again = 0; again < 2 && i > 11; ++again) {
        run.attempt("backward", [&] { y.backward(); });
      }
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      forward_only.total,
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  EXPECT_COUNTERS(forward_only.total, traces == 2 && program_backwards == 0);
  EXPECT_COUNTERS(forward_only.total, program_calls == 12);
}

TEST(CasesB, B3_LongHistoriesAreFreedWithoutRecursion) {
  if (disabled()) {
    return;
  }
  auto f = temper::compile([](Tensor x) { return x + 1; });
  auto x = torch::zeros({1}).requires_grad_();
  for (int i = 0; i < 3; ++i) {
    f(x).backward();
  }
  auto y = x;
  for (int i = 0; i < 150000; ++i) {
    y = f(y);
  }
  y = Tensor();
  // For eight of them the backward of the first may still come.
  EXPECT_COUNTERS(
      temper::counters_of(f),
      eager == 8 && because("waiting for the backward of a traced call"));
  EXPECT_COUNTERS(temper::counters_of(f), program_calls == 149993);
}

TEST(CasesB, B3_ABackwardInAnomalyModeIsNoLeak) {
  auto f = temper::compile([](Tensor x) { return x.exp().sqrt(); });
  for (int i = 0; i < 6; ++i) {
    auto x = torch::randn({3}).requires_grad_();
    const c10::weak_intrusive_ptr<at::TensorImpl> argument(x.getIntrusivePtr());
    auto y = f(x);
    torch::autograd::AnomalyMode::set_enabled(i >= 3);
    y.sum().backward({}, /*retain_graph=*/true); // Which keeps the arguments.
    torch::autograd::AnomalyMode::set_enabled(false);
    y.reset();
    x.reset();
    EXPECT_TRUE(argument.expired()) << "call " << i;
  }
  EXPECT_COUNTERS(temper::counters_of(f), traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(temper::counters_of(f), program_backwards == 2);
}

TEST(CasesB, B3_AnArgumentThatGetsTheResultsHistoryIsNoLeak) {
  if (disabled()) {
    return;
  }
  auto w = torch::randn({3}).requires_grad_();
  auto f = temper::compile([](Tensor h, Tensor v) { return h + v; });
  // The first call is traced.
  for (int i = 0; i < 6; ++i) {
    auto h = torch::zeros({3});
    const c10::weak_intrusive_ptr<at::TensorImpl> argument(h.getIntrusivePtr());
    auto y = f(h, w);
    h.copy_(y);
    h.sum().backward();
    y.reset();
    h.reset();
    EXPECT_TRUE(argument.expired()) << "call " << i;
  }
  EXPECT_COUNTERS(temper::counters_of(f), eager == 0 && program_calls == 5);
  EXPECT_COUNTERS(temper::counters_of(f), program_backwards == 5);
}

} // namespace
} // namespace temper::testing
