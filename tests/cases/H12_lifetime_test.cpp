// Cases H12 to H15: lifetimes, TorchScript, looking at tensors inside forward,
// scaled and straight-through gradients.
#include <gtest/gtest.h>

#include <torch/script.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "nets.h"
#include "support/compare.h"
#include "support/subprocess.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

TEST(CasesH, H12_ModuleDestroyedWithItsBackwardPending) {
  const auto report = expect_same([](Trial& run) {
    auto x = torch::randn({2, 4}).requires_grad_();
    std::vector<Tensor> pending;
    for (int i = 0; i < 4; ++i) {
      // Not through the trial, which would keep the module alive.
      TwoLayers net;
      if (run.compiled()) {
        net->compile();
      }
      for (int k = 0; k <= i; ++k) {
        pending.push_back(net(x));
      }
    }
    for (auto& y : pending) {
      run.note("y", y);
      y.pow(2).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"waiting for the backward of a traced call", 6}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 0);
}

TEST(CasesH, H12_CompiledFunctionDestroyedWithItsBackwardPending) {
  const auto report = expect_same([](Trial& run) {
    auto x = torch::randn({2, 4}).requires_grad_();
    Tensor y;
    for (int i = 0; i < 3; ++i) {
      auto w = torch::randn({4, 2});
      auto f =
          run.compile_function([w](Tensor t) { return t.matmul(w).exp(); });
      for (int k = 0; k < 3; ++k) {
        y = f(x);
      }
    }
    y.sum().backward();
    run.note_grad("x", x);
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a backward of a kind not seen before", 1},
              {"waiting for the backward of a traced call", 3}});
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 3);
}

TEST(CasesH, H12_DecompiledWithItsBackwardPending) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({2, 4}).requires_grad_();
    for (int i = 0; i < 3; ++i) {
      auto y = net(x);
      if (run.compiled() && i == 2) {
        net->decompile();
      }
      y.sum().backward();
      run.note_grad("x", x);
    }
    run.note("plain", net(x));
  });
  EXPECT_COUNTERS(report.total, calls == 3 && eager == 0 && traces == 1);
  EXPECT_COUNTERS(report.total, program_calls == 2 && program_backwards == 2);
}

TwoLayers& immortal() {
  static TwoLayers net;
  return net;
}

TEST(CasesHDeathTest, H12_StaticDestruction) {
  EXPECT_ENDS_WELL({
    static TwoLayers before;
    static Tensor pending;
    before->compile();
    immortal()->compile();
    auto x = torch::ones({2, 4});
    for (int i = 0; i < 4; ++i) {
      pending = before(x) + immortal()(x);
      pending.sum().backward();
      pending = before(x);
    }
    EXPECT_COUNTERS(temper::counters(), eager == 0 && program_calls == 10);
  });
}

TEST(CasesH, H12_DecompiledWithBackwardsPending) {
  if (disabled()) {
    return;
  }
  TwoLayers net;
  net->compile();
  const auto x = torch::ones({2, 4});
  for (int i = 0; i < 3; ++i) {
    net(x).sum().backward();
  }
  const auto gradient = net->first->bias.grad() / 3;
  const auto known = net(x);
  const auto unknown = net(x);
  net->decompile();
  net->zero_grad();
  known.sum().backward();
  EXPECT_TRUE(net->first->bias.grad().allclose(gradient));
  try {
    torch::autograd::grad({unknown.sum()}, {net->first->bias});
    ADD_FAILURE() << "no exception";
  } catch (const temper::Error& error) {
    EXPECT_NE(
        std::string(error.what()).find("was destroyed or decompiled before"),
        std::string::npos)
        << error.what();
  }
}

TEST(CasesHDeathTest, H12_CalledWhileStaticsAreDestroyed) {
  // Made before anything of temper's, which therefore goes before them.
  EXPECT_ENDS_WELL({
    static Tensor weight = torch::ones({4}, torch::requires_grad());
    static std::map<std::string, Tensor> more{{"a", torch::ones({4})}};
    static auto function = temper::compile(
        [](Tensor x) { return x * weight + more.at("a"); }, weight, more);
    static TwoLayers net;
    struct AtExit {
      ~AtExit() {
        for (int n = 3; n < 5; ++n) { // A known call and a new one.
          for (int i = 0; i < 4; ++i) {
            auto y = net(torch::ones({n, 4}));
            auto z = function(torch::ones({n, 4}));
            if (y.numel() != 3 * n || z.sum().item<double>() != 8 * n) {
              std::_Exit(2);
            }
          }
        }
        const int64_t by_program = temper::counters_of(net).program_calls;
        if (by_program != (disabled() ? 0 : 10) ||
            temper::counters_of(function).eager_total() != 0) {
          std::_Exit(3);
        }
      }
    };
    static const AtExit at_exit;
    net->compile();
    for (int i = 0; i < 4; ++i) {
      (net(torch::ones({3, 4})).sum() + function(torch::ones({3, 4})).sum())
          .backward();
    }
    static_cast<void>(at_exit);
  });
}

struct ThreadsLast {
  ~ThreadsLast() {
    if (net) {
      net(torch::ones({2, 4}));
    }
  }
  TwoLayers net{nullptr};
};

TEST(CasesHDeathTest, H12_CalledWhileTheThreadsObjectsAreDestroyed) {
  EXPECT_ENDS_WELL({
    std::thread([] {
      thread_local ThreadsLast last; // Made first, so it goes last.
      last.net = TwoLayers();
      last.net->compile();
      for (int i = 0; i < 4; ++i) {
        last.net(torch::ones({2, 4})).sum().backward();
      }
    }).join();
    EXPECT_COUNTERS(temper::counters(), calls == 5 && program_calls == 4);
  });
}

TEST(CasesHDeathTest, H12_AThreadThatEndsAfterItsCalls) {
  EXPECT_ENDS_WELL({
    TwoLayers net;
    net->compile();
    for (int k = 0; k < 3; ++k) {
      std::thread([&] {
        for (int i = 0; i < 3; ++i) {
          net(torch::ones({2, 4})).sum().backward();
        }
      }).join();
    }
    EXPECT_COUNTERS(temper::counters(), eager == 0 && traces == 1);
    EXPECT_COUNTERS(temper::counters(), program_backwards == 8);
  });
}

TEST(CasesHDeathTest, H12_ForkAfterACompile) {
  EXPECT_SURVIVES({
    // OpenMP cannot be used on both sides of a fork, with or without temper.
    at::set_num_threads(1);
    TwoLayers net;
    net->compile();
    auto x = torch::ones({2, 4});
    const torch::NoGradGuard no_grad;
    const auto expected = net->forward(x);
    for (int i = 0; i < 4; ++i) {
      net(x);
    }
    const pid_t child = ::fork();
    if (child == 0) {
      set_time_limit(20);
      bool right = torch::equal(net(x), expected);
      // Something new: traced and compiled in the child.
      auto longer = torch::ones({3, 4});
      for (int i = 0; i < 4; ++i) {
        right = right && torch::equal(net(longer), net->forward(longer));
      }
      const Counters all = temper::counters();
      right = right && all.eager_total() == 0;
      const bool counted = disabled() || has_mutant() || all.program_calls == 7;
      ::_exit(right && counted ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(torch::equal(net(x), expected));
    EXPECT_COUNTERS(temper::counters(), eager == 0 && program_calls == 4);
  });
}

// A step on `x` without temper gives `net` the weights that one with it does.
bool trains_like_eager(TwoLayers& net, const Tensor& x) {
  const auto step = [&](const Tensor& y) {
    torch::optim::SGD steps(net->parameters(), 0.1);
    steps.zero_grad();
    y.pow(2).sum().backward();
    steps.step();
  };
  std::vector<Tensor> start, trained;
  for (const auto& p : net->parameters()) {
    start.push_back(p.detach().clone());
  }
  step(net(x));
  bool same = true;
  for (const auto& p : net->parameters()) {
    trained.push_back(p.detach().clone());
  }
  {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < start.size(); ++i) {
      same = same && !trained[i].equal(start[i]);
      net->parameters()[i].copy_(start[i]);
    }
  }
  step(net->forward(x));
  for (size_t i = 0; i < start.size(); ++i) {
    same = same && net->parameters()[i].equal(trained[i]);
  }
  return same;
}

TEST(CasesHDeathTest, H12_TrainingAfterAFork) {
  EXPECT_SURVIVES({
    // OpenMP cannot be used on both sides of a fork, with or without temper.
    at::set_num_threads(1);
    TwoLayers net;
    net->compile();
    const auto x = torch::randn({2, 4});
    for (int i = 0; i < 4; ++i) {
      EXPECT_TRUE(trains_like_eager(net, x));
    }
    EXPECT_COUNTERS(temper::counters(), eager == 0 && program_calls == 3);
    const pid_t child = ::fork();
    if (child == 0) {
      set_time_limit(20);
      // An admitted step; then something new: traced and compiled in the child.
      bool right = trains_like_eager(net, x);
      const auto longer = torch::randn({3, 4});
      for (int i = 0; i < 4; ++i) {
        right = right && trains_like_eager(net, longer);
      }
      const Counters all = temper::counters();
      const bool counted = disabled() || has_mutant() ||
          (all.program_calls == 7 && all.program_backwards == 7 &&
           all.traces == 2 && all.eager_total() == 0);
      ::_exit(right && counted ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_TRUE(trains_like_eager(net, x));
    EXPECT_COUNTERS(
        temper::counters(), program_calls == 4 && program_backwards == 4);
  });
}

/// Holds a script module, whose operators change as it warms up.
struct ScriptedImpl : temper::Module<ScriptedImpl> {
  nn::Linear fc{nullptr};
  std::shared_ptr<torch::jit::Module> script;

  ScriptedImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
    script = std::make_shared<torch::jit::Module>("m");
    script->register_parameter("w", torch::full({4}, 0.5), false);
    script->define(R"(
      def forward(self, x):
          y = x * self.w + 1
          y = torch.relu(y) * torch.sigmoid(y)
          return y.sum(1)
    )");
  }
  Tensor forward(Tensor x) {
    return script->forward({fc(x)}).toTensor() * 2;
  }
};
TEMPER_MODULE(Scripted);

TEST(CasesH, H13_ScriptChild) {
  const auto report = expect_same([](Trial& run) {
    Scripted net;
    run.compile(net);
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({i < 5 ? 3 : 2, 4}).requires_grad_();
      auto y = net(x);
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 8 && because("of 'ScriptedImpl'"));
  EXPECT_COUNTERS(report.total, traces == 0 && program_calls == 0);
}

TEST(CasesH, H13_CompiledChildInSequential) {
  // Sequential calls forward itself, so the child runs as it is.
  const auto report = expect_same([](Trial& run) {
    TwoLayers child;
    run.compile(child);
    nn::Sequential net(child, nn::ReLU());
    auto f = run.compile_function(
        [net](Tensor x) mutable { return net->forward(x); }, net);
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({2, 4});
      run.note("plain", net->forward(x));
      auto y = f(x);
      run.note("compiled", y);
      run.note("child", child(x));
      y.sum().backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 8);
  EXPECT_COUNTERS(report.total, traces == 2 && program_backwards == 4);
}

/// A compiled module that calls another compiled one.
struct OuterImpl : temper::Module<OuterImpl> {
  TwoLayers inner{nullptr};
  nn::Linear out{nullptr};

  OuterImpl() {
    reset();
  }
  void reset() override {
    inner = register_module("inner", TwoLayers());
    out = register_module("out", nn::Linear(3, 2));
  }
  Tensor forward(Tensor x) {
    return out(inner(x));
  }
};
TEMPER_MODULE(Outer);

TEST(CasesH, H13_CompiledInsideCompiled) {
  const auto report = expect_same([](Trial& run) {
    Outer net;
    run.compile(net->inner);
    run.compile(net);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({2, 4});
      auto y = net(x);
      run.note("y", y);
      run.note("inner", net->inner(x));
      y.sum().backward();
      run.note_module("net", *net);
    }
  });
  // The inner module, called by itself, is a site of its own.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 10);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesH, H15_ScaleWithoutGrad) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      Tensor s;
      {
        const torch::NoGradGuard no_grad;
        s = x * x;
      }
      return x / s;
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::tensor({0.5, 1.5, 2.5}).requires_grad_();
      auto g = torch::autograd::grad({f(x).pow(2).sum()}, {x}, {}, true, true);
      run.note("first", g[0]);
      auto gg = torch::autograd::grad({g[0].sum()}, {x});
      run.note("second", gg[0]);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"double backward (create_graph) through the call", 5}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H15_StraightThrough) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto hard = (x > 0).to(x.scalar_type());
      auto soft = x.sigmoid();
      return (hard - soft).detach() + soft;
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({6}).requires_grad_();
      auto y = f(x);
      run.note("y", y);
      y.pow(2).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

} // namespace
} // namespace temper::testing
