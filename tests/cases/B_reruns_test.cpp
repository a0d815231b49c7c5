// Neighbours of B1 and B3: backwards that the plan does not know run the code
// again, more than once, with buffers that count and functions of the user's.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "nets.h"
#include "support/compare.h"
#include "support/subprocess.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace autograd = torch::autograd;

struct CountingImpl : temper::Module<CountingImpl> {
  torch::nn::Linear fc{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};

  CountingImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(4, 3));
    norm = register_module("norm", torch::nn::BatchNorm1d(3));
  }
  Tensor forward(Tensor x) {
    return norm(fc(x)).sigmoid();
  }
};
TEMPER_MODULE(Counting);

TEST(CasesB, Reruns_TwiceOfOneCallThatCountsInABuffer) {
  const auto scenario = [](Trial& run) {
    Counting net;
    run.compile(net);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({5, 4}).requires_grad_();
      auto y = net(x);
      const auto version = net->norm->num_batches_tracked._version();
      if (i == 3) {
        // Nobody has asked for x alone before, nor for a second derivative.
        auto once =
            autograd::grad({y.pow(2).sum()}, {x}, {}, /*retain_graph=*/true);
        run.note("once", once[0]);
        run.attempt("twice", [&] {
          auto first = autograd::grad(
              {y.pow(2).sum()}, {x}, {}, true, /*create_graph=*/true);
          run.note("first", first[0]);
          run.note(
              "second", autograd::grad({first[0].sum()}, {x}, {}, true)[0]);
        });
      }
      run.note("versions", net->norm->num_batches_tracked._version() - version);
      // A kind that is known, after those that were not.
      net->zero_grad();
      run.attempt("backward", [&] { y.sum().backward(); });
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  };
  const auto report = expect_same(
      scenario, {{1e-6, 1e-14}, "second derivatives: README, Limits, sums"});
  EXPECT_COUNTERS(
      report.total,
      program_backwards == 3 && program_calls == 3 && traces == 1);
  // For x alone, once directly and once within the second derivative; and what
  // had a second derivative is eager.
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a backward of a kind not seen before", 2},
              {"double backward (create_graph) through the call", 3}});
}

// Decides what it returns by what guards don't see.
int64_t kind_of_result = 0;

TEST(CasesB, Reruns_OfCodeThatDoesSomethingElseNow) {
  if (disabled()) {
    return;
  }
  for (const int64_t later : {1, 2}) {
    kind_of_result = 0;
    auto f = temper::compile([](const Tensor& x) {
      std::vector<Tensor> results{x.sin()};
      if (kind_of_result == 1) {
        results.push_back(x * 2);
      }
      if (kind_of_result == 2) {
        results[0] = results[0].detach();
      }
      return results;
    });
    std::vector<Tensor> results;
    auto x = torch::randn({3}).requires_grad_();
    for (int i = 0; i < 3; ++i) {
      results = f(x);
      if (i < 2) {
        results[0].sum().backward();
      }
    }
    kind_of_result = later;
    try {
      autograd::grad({results[0].sum()}, {x}, {}, true, /*create_graph=*/true);
      ADD_FAILURE() << "expected temper::Error";
    } catch (const temper::Error& error) {
      EXPECT_NE(
          std::string(error.what())
              .find("its code gave other results when it was run again"),
          std::string::npos)
          << error.what();
    }
    // Nothing is lost: as it was, it can run.
    kind_of_result = 0;
    auto g = autograd::grad({results[0].sum()}, {x}, {}, true, true)[0];
    EXPECT_TRUE(g.equal(x.detach().cos()));
    EXPECT_COUNTERS(
        f.counters(),
        traces == 1 && admissions == 1 && program_calls == 2 &&
            program_backwards == 1);
    EXPECT_COUNTERS(
        f.counters(),
        reasons ==
            Reasons{{"double backward (create_graph) through the call", 2}});
  }
}

struct Doubled : autograd::Function<Doubled> {
  static autograd::variable_list forward(
      autograd::AutogradContext*,
      const Tensor& x,
      const Tensor& y) {
    return {x * 2, y * 3};
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list g) {
    return {
        g[0].defined() ? g[0] * 2 : Tensor(),
        g[1].defined() ? g[1] * 3 : Tensor()};
  }
};

// Each kind of backward is proved by two calls, whatever came between them.
TEST(CasesB, Reruns_FourKindsOfACustomBackwardInTurn) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Tensor& x, const Tensor& y) {
      auto results = Doubled::apply(x, y);
      return std::make_tuple(results[0].sin(), results[1].cos());
    });
    for (int round = 0; round < 12; ++round) {
      if (round == 8) {
        run.steady();
      }
      for (int kind = 0; kind < 4; ++kind) {
        auto x = torch::randn({3}).requires_grad_();
        auto y = torch::randn({3}).requires_grad_();
        auto [a, b] = f(x, y);
        if (kind == 0) {
          a.sum().backward();
        } else if (kind == 1) {
          b.sum().backward();
        } else if (kind == 2) {
          (a.sum() + b.sum()).backward();
        } else {
          run.note("only x", autograd::grad({a.sum() + b.sum()}, {x})[0]);
        }
        run.note_grad("x", x);
        run.note_grad("y", y);
      }
    }
  });
  EXPECT_COUNTERS(
      report.steady,
      eager == 0 && program_calls == 16 && program_backwards == 16);
}

// While another thread is in the backward that is recorded, nothing is decided.
TEST(CasesB, Reruns_CallsDuringALongFirstBackward) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](const Tensor& x) { return (x * 2).sin().sum(); });
    // Nothing waits for ever, and what the thread throws is thrown here.
    const auto limit = std::chrono::seconds(60);
    std::promise<void> begun;
    std::promise<void> release;
    auto x = torch::randn({3}).requires_grad_();
    x.register_hook([&](const Tensor& g) {
      begun.set_value();
      release.get_future().wait_for(limit);
      return g;
    });
    auto first = std::async(std::launch::async, [&] { f(x).backward(); });
    EXPECT_EQ(begun.get_future().wait_for(limit), std::future_status::ready);
    for (int i = 0; i < 30; ++i) {
      run.note("meanwhile", f(torch::randn({3}).requires_grad_()));
    }
    release.set_value();
    first.get();
    run.note_grad("x", x);
    run.steady();
    for (int i = 0; i < 3; ++i) {
      auto v = torch::randn({3}).requires_grad_();
      f(v).backward();
      run.note_grad("v", v);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      traces == 1 && eager == 30 &&
          because("waiting for the backward of a traced call"));
  EXPECT_COUNTERS(report.steady, program_calls == 3 && program_backwards == 3);
}

// A cell that is called many times before one backward.
TEST(CasesB, Reruns_AnUnrolledCellIsCompiled) {
  const auto report = expect_same([](Trial& run) {
    torch::nn::GRUCell cell(3, 5);
    auto f = run.compile_function(
        [&cell](Tensor x, Tensor h) { return cell(x, h); }, cell);
    for (int episode = 0; episode < 8; ++episode) {
      if (episode == 6) {
        run.steady();
      }
      auto h = torch::zeros({2, 5});
      for (int t = 0; t < 24; ++t) {
        h = f(torch::randn({2, 3}), h);
      }
      cell->zero_grad();
      h.pow(2).sum().backward();
      run.note("h", h);
      run.note_module("cell", *cell);
    }
  });
  EXPECT_COUNTERS(
      report.steady,
      eager == 0 && program_calls == 48 && program_backwards == 48);
}

// The traced call's own argument is in the history that it has made.
TEST(CasesB, Reruns_RewrittenArgumentsAreLetGo) {
  auto w = torch::randn({4}).requires_grad_();
  for (const bool with_backward : {true, false}) {
    auto f = temper::compile(
        [&w](Tensor a) {
          a.mul_(w);
          return a.sin();
        },
        w);
    std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> all;
    for (int64_t i = 0; i < 24; ++i) {
      auto p = torch::randn({i % 6 + 1, 4}).requires_grad_();
      auto a = p * 2;
      auto y = f(a);
      if (with_backward) {
        (y.sum() + a.sum()).backward();
      }
      all.emplace_back(a.getIntrusivePtr());
    }
    for (const auto& each : all) {
      EXPECT_TRUE(each.expired());
    }
    if (with_backward) {
      EXPECT_COUNTERS(
          f.counters(),
          eager == 0 && traces == 6 && program_calls == 18 &&
              program_backwards == 18);
    } else {
      EXPECT_COUNTERS(
          f.counters(),
          traces == 12 &&
              reasons ==
                  Reasons{{"waiting for the backward of a traced call", 12}});
    }
  }
}

TEST(CasesB, Reruns_TracesOfACallWithoutBackwardAreFew) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor& x) {
      x.mul_(3);
      return x.sum();
    });
    auto w = torch::randn({3}).requires_grad_();
    for (int i = 0; i < 100; ++i) {
      auto x = w * 2;
      run.note("y", f(x));
      run.note("x", x);
    }
    run.steady();
    // Then they come.
    for (int i = 0; i < 80; ++i) {
      auto x = w * 2;
      f(x).backward();
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      traces == 8 && admissions == 1 && program_calls == 45 &&
          because(
              "no backward has come, which must be known where an argument "
              "with a history is written",
              "waiting for the backward of a traced call"));
  EXPECT_COUNTERS(
      report.steady,
      traces == 1 && program_calls == 45 && program_backwards == 45);
}

// Gradients that are taken inside the call run the hooks that the user has put
// on its arguments and parameters: with others it is another call.
TEST(CasesB, Reruns_HooksThatGradientsInsideTheCallRun) {
  const auto report = expect_same([](Trial& run) {
    auto w = torch::randn({4}).requires_grad_();
    auto f = run.compile_function(
        [&w](Tensor x) {
          return autograd::grad({(x * w).sin().sum()}, {x, w})[0] * 2;
        },
        w);
    unsigned handle = 0;
    for (int i = 0; i < 16; ++i) {
      if (i == 4) {
        handle = w.register_hook([](Tensor g) { return g * 10; });
      }
      if (i == 8) {
        w.remove_hook(handle);
      }
      auto x = torch::randn({4}).requires_grad_();
      if (i >= 12) {
        x.register_hook([](Tensor g) { return g * 100; });
      }
      run.note("y", f(x));
    }
  });
  EXPECT_COUNTERS(
      report.total,
      program_calls == 7 &&
          because("a gradient that is taken inside the call runs a hook"));
}

// A gradient that is retained is kept by a hook as well.
TEST(CasesB, Reruns_RetainedGradientsInsideTheCall) {
  const auto report = expect_same([](Trial& run) {
    auto leaf = torch::randn({4}).requires_grad_();
    auto f = run.compile_function(
        [](Tensor x) { return autograd::grad({x.sin().sum()}, {x})[0] * 2; });
    for (int i = 0; i < 10; ++i) {
      auto x = leaf * 1;
      if (i >= 4 && i < 8) {
        x.retain_grad();
      }
      run.note("y", f(x));
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      program_calls == 5 && eager == 4 &&
          because("a gradient that is taken inside the call runs a hook"));
}

// The detached one shares its version with what the backward has saved.
TEST(CasesB, Reruns_ADetachedResultIsWrittenBeforeTheBackward) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Tensor& x) {
      auto y = x.exp();
      return std::make_tuple(y, y.detach());
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto [y, detached] = f(x);
      if (i % 2 == 1) {
        detached.mul_(2);
      }
      // The error's text names eager's node.
      int64_t threw = 0;
      try {
        y.sum().backward();
      } catch (const c10::Error& error) {
        threw = 1;
        EXPECT_NE(
            std::string(error.what()).find("modified by an inplace operation"),
            std::string::npos);
      }
      run.note("threw", threw);
      run.note("y", y);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, traces == 1 && program_calls == 5 && eager == 0);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

// Views among the results, without grad, are views: what is done to one later
// reaches the other's gradient.
TEST(CasesB, Reruns_ViewsAmongResultsWithoutGrad) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Tensor& x) {
      auto y = x * 2;
      return std::make_tuple(y, y.view({-1}), y[0]);
    });
    for (int i = 0; i < 6; ++i) {
      auto [y, flat, row] = f(torch::randn({2, 3}));
      auto w = torch::randn({6}).requires_grad_();
      run.note("is_view", static_cast<int64_t>(flat.is_view() + row.is_view()));
      run.attempt("write", [&] {
        flat.mul_(w);
        (y.sum() + row.sum()).backward();
      });
      run.note_grad("w", w);
      run.note("y", y);
    }
  });
  EXPECT_COUNTERS(report.total, program_calls == 5 && eager == 0);
}

struct GivesNothing : autograd::Function<GivesNothing> {
  static Tensor forward(
      autograd::AutogradContext*,
      const Tensor& x,
      const Tensor& scale) {
    return x * scale;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list g) {
    return {g[0] * 2, Tensor()};
  }
};

// An undefined gradient is a gradient: what lies behind it is visited.
TEST(CasesB, Reruns_UndefinedGradients) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Tensor& x, const Tensor& scale) {
      return GivesNothing::apply(x, scale).sin();
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto w = torch::randn({3}).requires_grad_();
      auto leaf = torch::randn({3}).requires_grad_();
      int64_t hooks = 0;
      const auto count = [&](const Tensor& g) {
        ++hooks;
        return g;
      };
      auto scale = w * 2;
      scale.register_hook(count);
      leaf.register_hook(count);
      (f(x, scale) + f(x, leaf)).sum().backward();
      run.note("hooks", hooks);
      run.note_grad("x", x);
      run.note_grad("w", w);
      run.note_grad("leaf", leaf);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 4 && admissions == 2 && program_calls == 8 &&
          program_backwards == 8);
}

struct FilledByAThread : autograd::Function<FilledByAThread> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list g) {
    auto gradient = g[0] * 2;
    std::thread([&] {
      const torch::NoGradGuard no_grad;
      gradient.add_(1);
    }).join();
    return {gradient};
  }
};

TEST(CasesB, Reruns_GradientsThatAThreadFills) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](const Tensor& x) { return FilledByAThread::apply(x).sin(); });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      f(x).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      program_backwards == 0 && eager == 5 && traces == 1 &&
          because("the data of a tensor is read outside of tensor ops "
                  "(data_ptr, an accessor, an Eigen map), by a thread"));
}

TEST(CasesBDeathTest, Reruns_LongHistoriesAreFreedWithoutRecursion) {
  EXPECT_SURVIVES({
    auto w = torch::ones({2}).requires_grad_();
    auto f = temper::compile([&w](const Tensor& x) { return x * w; }, w);
    auto x = torch::full({2}, 3.0);
    for (int i = 0; i < 60000; ++i) {
      x = f(x);
      if (i < 3) {
        x.sum().backward({}, /*retain_graph=*/true);
      }
    }
    EXPECT_GT(temper::counters_of(f).program_calls, disabled() ? -1 : 59000);
    EXPECT_TRUE(w.grad().equal(torch::full({2}, 3.0 + 6.0 + 9.0)));
    x = Tensor();
  });
}

// What eager saved of a weight is a view of it, or the weight itself.
TEST(CasesB, Reruns_MemoryExchangedBetweenCallAndBackward) {
  for (const bool view : {false, true}) {
    const auto report = expect_same([view](Trial& run) {
      auto w = torch::randn({4, 4}).requires_grad_();
      auto f = run.compile_function(
          [&w, view](Tensor x) { return view ? x.mm(w.t()) : x * w; }, w);
      for (int i = 0; i < 9; ++i) {
        auto x = torch::randn({4, 4}).requires_grad_();
        auto y = f(x);
        if (i % 3 == 2) {
          w.set_data(torch::ones({4, 4}));
        }
        run.attempt("backward", [&] { y.sum().backward(); });
        run.note_grad("x", x);
        run.note_grad("w", w);
      }
    });
    EXPECT_COUNTERS(report.total, eager == 0 && program_backwards == 8);
  }
}

} // namespace
} // namespace temper::testing
