// Cases B9 and B11 to B16: grad modes inside, autocast, accumulation, inference
// mode, shared parameters, custom functions.
#include <gtest/gtest.h>

#include "autocast.h"
#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

TEST(CasesB, B9_EnableGradInsideNoGrad) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w) {
      auto outside = w * 3;
      const torch::AutoGradMode grad(true);
      return std::make_tuple(outside, (w * 2).sum());
    });
    auto w = torch::randn({3}).requires_grad_();
    for (int i = 0; i < 5; ++i) {
      std::tuple<Tensor, Tensor> all;
      {
        const torch::NoGradGuard no_grad;
        all = f(w);
      }
      run.note("all", all);
      std::get<1>(all).backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B9_NoGradInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor w) {
      Tensor scale;
      {
        const torch::NoGradGuard no_grad;
        scale = w.abs().max();
      }
      return std::make_tuple(w / scale, scale);
    });
    for (int i = 0; i < 5; ++i) {
      auto w = torch::randn({3}).requires_grad_();
      auto all = f(w);
      run.note("all", all);
      std::get<0>(all).pow(3).sum().backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B9_RequiresGradAndDetachInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto leaf = x.detach().clone().requires_grad_();
      auto y = (leaf * x).exp();
      auto cut = y * 2;
      cut.detach_();
      return std::make_tuple(leaf, y, cut);
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({3}).requires_grad_(i % 2 == 0);
      auto [leaf, y, cut] = f(x);
      run.note("leaf", leaf);
      run.note("y", y);
      run.note("cut", cut);
      y.sum().backward();
      run.note_grad("leaf", leaf);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"gradients flow to a tensor that is no input, argument or "
               "watched parameter",
               3}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

TEST(CasesB, B9_DetachInPlaceInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto cut = x * 2;
      cut.detach_();
      return std::make_tuple(x.exp() * cut, cut);
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [y, cut] = f(x);
      run.note("y", y);
      run.note("cut", cut);
      y.sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B9_RequiresGradTakenBackInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto mask = (x > 0).to(x.scalar_type()).requires_grad_();
      mask.requires_grad_(false);
      return std::make_tuple(x * mask, mask);
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [y, mask] = f(x);
      run.note("y", y);
      run.note("mask", mask);
      y.sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

// Eager mode casts a weight once a region and sums its gradients in bf16; in a
// compiled call each use has a cast of its own.
TEST(CasesB, B11_AWeightUsedTwice) {
  for (const bool two_calls : {false, true}) {
    const auto scenario = [two_calls](Trial& run, bool gradients) {
      auto w = torch::randn({16, 16}).requires_grad_();
      auto f = run.compile_function([two_calls](Tensor x, Tensor v) {
        auto h = torch::tanh(x.mm(v));
        return two_calls ? h : h.mm(v);
      });
      for (int i = 0; i < 6; ++i) {
        Tensor y;
        {
          const Autocast autocast;
          auto x = torch::randn({8, 16});
          y = two_calls ? f(x, w) + f(x * 2, w) : f(x, w);
        }
        y.to(torch::kFloat).pow(2).sum().backward();
        if (gradients) {
          run.note_grad("w", w);
        } else {
          run.note("y", y);
        }
        w.mutable_grad() = Tensor();
      }
    };
    const auto values = expect_same([&](Trial& run) { scenario(run, false); });
    EXPECT_COUNTERS(
        values.total,
        eager == (two_calls ? 1 : 0) &&
            program_backwards == (two_calls ? 10 : 5));
    // A step of bf16 is 2^-8 of its value.
    expect_same(
        [&](Trial& run) { scenario(run, true); },
        {{1.0 / 64, 1.0 / 16}, "sums in bf16, see README, Limits: Autocast"});
  }
}

TEST(CasesB, B11_Autocast) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 8; ++i) {
      net->zero_grad();
      if (i % 2 == 0) {
        const Autocast autocast;
        auto y = net(x);
        run.note("y", y);
        y.pow(2).sum().backward();
      } else {
        Tensor y;
        {
          const Autocast autocast;
          y = net(x);
        }
        y.pow(2).sum().backward();
      }
      EXPECT_EQ(net->first->weight.grad().scalar_type(), torch::kFloat);
      run.note_module("net", *net);
      run.note_grad("x", x);
    }
  });
  // Its backward runs inside the region or outside: two kinds.
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B11_AutocastInside) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto f = run.compile_function(
        [&net](Tensor x) {
          Tensor y;
          {
            const Autocast autocast;
            y = net->forward(x);
          }
          return y.to(torch::kFloat).log_softmax(1);
        },
        net);
    for (int i = 0; i < 5; ++i) {
      auto y = f(torch::randn({3, 4}));
      run.note("y", y);
      y.sum().backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesB, B12_MicroSteps) {
  for (const bool set_to_none : {true, false}) {
    const auto report = expect_same([&](Trial& run) {
      TwoLayers net;
      run.compile(net);
      torch::optim::SGD steps(net->parameters(), 0.1);
      for (int step = 0; step < 4; ++step) {
        steps.zero_grad(set_to_none);
        for (int micro = 0; micro < 4; ++micro) {
          auto y = net(torch::randn({3, 4}));
          (y.pow(2).mean() / 4).backward();
          // The numbers of tensors in the transcript show that gradients are
          // accumulated into the same tensor.
          run.note_module("net", *net);
        }
        steps.step();
      }
    });
    EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 1 && traces == 1);
    EXPECT_COUNTERS(
        report.total, program_calls == 15 && program_backwards == 15);
  }
}

TEST(CasesB, B12_OldGradientKeptByTheUser) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    std::vector<Tensor> kept;
    for (int i = 0; i < 6; ++i) {
      if (i % 3 == 0) {
        net->zero_grad();
      }
      net(torch::randn({3, 4})).sum().backward();
      kept.push_back(net->first->weight.grad());
      run.note("kept", kept);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B13_InferenceModeThenTraining) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    Tensor made;
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < 3; ++i) {
        const c10::InferenceMode inference;
        made = net(x);
        run.note("inference", made);
      }
      for (int i = 0; i < 3; ++i) {
        net->zero_grad();
        auto y = net(x);
        run.note("training", y);
        y.sum().backward();
        run.note_module("net", *net);
      }
      const torch::NoGradGuard no_grad;
      run.note("no grad", net(x));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 3);
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 11);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B13_InferenceTensorSavedForBackward) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    Tensor frozen;
    {
      const c10::InferenceMode inference;
      frozen = torch::randn({3, 4});
    }
    auto x = torch::randn({3, 4});
    for (int i = 0; i < 3; ++i) {
      net(x).sum().backward();
      run.attempt("inference tensor", [&] { net(frozen).sum().backward(); });
      run.note_module("net", *net);
      const torch::NoGradGuard no_grad;
      run.note("no grad", net(frozen));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 5 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 2);
}

/// A parameter that is embedding and head.
struct TiedImpl : temper::Module<TiedImpl> {
  Tensor weight;
  TiedImpl() {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::randn({7, 4}));
  }
  Tensor forward(Tensor tokens) {
    return torch::embedding(weight, tokens).tanh().matmul(weight.t());
  }
};
TEMPER_MODULE(Tied);

TEST(CasesB, B14_TiedParameter) {
  const auto report = expect_same([](Trial& run) {
    Tied net;
    run.compile(net);
    const auto train = [&](Tied& model) {
      torch::optim::SGD steps(model->parameters(), 0.1);
      for (int i = 0; i < 3; ++i) {
        steps.zero_grad();
        auto y = model(torch::randint(7, {2, 3}, torch::kLong));
        run.note("y", y);
        y.log_softmax(-1).pow(2).mean().backward();
        steps.step();
        run.note_module("net", *model);
      }
    };
    train(net);
    Tied copy(std::dynamic_pointer_cast<TiedImpl>(net->clone()));
    train(copy);
    net->to(torch::kDouble);
    train(net);
    run.note("entries", static_cast<int64_t>(net->parameters().size()));
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 6);
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

TEST(CasesB, B15_EqualityMasks) {
  // A maximum recomputed in backward with other bits would match nothing.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) {
      auto h = torch::softmax(x.matmul(w).exp().sin() * 1.7, 1);
      return h.amax(1).sum() + h.amin(0).log().sum() +
          torch::maximum(h, h.flip(0)).sum();
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({33, 17}).requires_grad_();
      auto w = torch::randn({17, 33}).requires_grad_();
      f(x, w).backward();
      EXPECT_GT(x.grad().abs().sum().item<float>(), 0);
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
    // Ties share the gradient.
    auto ties = torch::ones({4, 4}).requires_grad_();
    auto one = torch::ones({4, 4}).requires_grad_();
    f(ties, one).backward();
    run.note_grad("ties", ties);
  });
  // And the ties, of another size.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

/// A straight line backwards, whatever forward does; counts its backwards.
struct Rounded : torch::autograd::Function<Rounded> {
  static int64_t backwards;
  static Tensor forward(
      torch::autograd::AutogradContext* context,
      const Tensor& x,
      double scale) {
    context->saved_data["scale"] = scale;
    context->save_for_backward({x});
    return (x / scale).round() * scale;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& grads) {
    ++backwards;
    auto x = context->get_saved_variables()[0];
    auto inside = (x.abs() < 2).to(x.scalar_type());
    return {
        grads[0] * inside * context->saved_data["scale"].toDouble(), Tensor()};
  }
};
int64_t Rounded::backwards = 0;

TEST(CasesB, B16_CustomFunction) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, double scale) {
      return Rounded::apply(x * 3, scale).sin();
    });
    for (int i = 0; i < 9; ++i) {
      auto x = torch::randn({8}).requires_grad_();
      auto y = f(x, i < 6 ? 0.25 : 0.5);
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
    }
  });
  // Two traces of each signature, for its backward runs the user's code.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 4 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, B16_GradientsInsideForward) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto f = run.compile_function(
        [&net](Tensor pos) {
          const torch::AutoGradMode grad(true);
          auto p = pos.detach().requires_grad_();
          auto energy = net->forward(p).pow(2).sum();
          auto forces =
              -torch::autograd::grad({energy}, {p}, {}, true, true)[0];
          return std::make_tuple(energy, forces);
        },
        net);
    for (int i = 0; i < 5; ++i) {
      net->zero_grad();
      auto [energy, forces] = f(torch::randn({3, 4}));
      run.note("energy", energy);
      run.note("forces", forces);
      (energy + forces.pow(2).sum()).backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

} // namespace
} // namespace temper::testing
