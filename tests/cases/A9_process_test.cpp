// Cases A8 to A16: hooks, modes in turn, threads, default dtype, lifetime,
// copies.
#include <gtest/gtest.h>

#include <ATen/autocast_mode.h>

#include <atomic>
#include <fstream>
#include <sstream>
#include <thread>

#include <unistd.h>

#include "nets.h"
#include "runtime/artifact_store.h"
#include "support/compare.h"
#include "threads.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

TEST(CasesA, A9_FiftyTimesTrainingAndEvaluation) {
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    torch::optim::SGD steps(net->parameters(), 0.05);
    for (int i = 0; i < 50; ++i) {
      if (i == 3) {
        run.steady();
      }
      net->train();
      steps.zero_grad();
      auto y = net(torch::randn({6, 4}));
      y.pow(2).mean().backward();
      steps.step();
      run.note("training", y);

      net->eval();
      const torch::NoGradGuard no_grad;
      run.note("evaluation", net(torch::randn({6, 4})));
      run.note_module("net", *net);
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2 && traces == 2);
  EXPECT_COUNTERS(report.steady, program_calls == calls && calls == 94);
  EXPECT_COUNTERS(report.steady, program_backwards == 47);
}

TEST(CasesA, A9_OnlyOneChildSwitched) {
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    const torch::NoGradGuard no_grad;
    auto x = torch::randn({6, 4});
    for (int i = 0; i < 12; ++i) {
      net->dropout->train(i % 2 == 0);
      net->norm->train(i % 3 == 0);
      run.note("y", net(x));
      run.note_module("net", *net);
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 4);
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 8);
}

// Sums of 2^17 floats depend on how many threads share them.
void expect_obeys(const std::vector<int>& counts) {
  const ThreadCount restored;
  const auto report = expect_same([&](Trial& run) {
    auto f = run.compile_function([](torch::Tensor x) {
      return std::make_tuple(
          x.exp().sum(), torch::softmax(x, 0), (x * 0.5 + x.relu()).mean());
    });
    auto x = torch::randn({1 << 17}).requires_grad_();
    for (const int count : counts) {
      at::set_num_threads(count);
      for (int i = 0; i < 3; ++i) {
        auto all = f(x);
        run.note("all", all);
        (std::get<0>(all) + std::get<2>(all)).backward();
        run.note_grad("x", x);
        run.note("threads", int64_t{at::get_num_threads()});
      }
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 1);
  // Guards leave the number of threads out.
  const auto times = 3 * static_cast<int64_t>(counts.size());
  EXPECT_COUNTERS(
      report.total,
      traces == 1 && program_calls == times - 1 &&
          program_backwards == times - 1);
}

TEST(CasesA, A10_FewerThreads) {
  expect_obeys({4, 1, 2});
}

TEST(CasesA, A10_MoreThreads) {
  expect_obeys({1, 4});
}

class DefaultDtype {
 public:
  ~DefaultDtype() {
    torch::set_default_dtype(old_);
  }

 private:
  caffe2::TypeMeta old_ = torch::get_default_dtype();
};

TEST(CasesA, A11_DefaultDtype) {
  const DefaultDtype restored;
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](torch::Tensor x) {
      auto made = torch::ones({3}) * 0.1 + torch::arange(0, 1.5, 0.5);
      return std::make_tuple(made + x, torch::zeros({2}), x / 3);
    });
    for (int i = 0; i < 9; ++i) {
      const auto dtype = i % 3 == 0 ? torch::kDouble : torch::kFloat;
      torch::set_default_dtype(c10::scalarTypeToTypeMeta(dtype));
      run.note("float", f(torch::ones({3}, torch::kFloat)));
      run.note("int", f(torch::ones({3}, torch::kInt)));
    }
    torch::set_default_dtype(c10::scalarTypeToTypeMeta(torch::kFloat));
  });
  // Two default dtypes, two of the argument.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 4 && program_calls == 14);
}

// Runs both at the same time and passes on what they throw.
void together(const std::function<void()>& a, const std::function<void()>& b) {
  std::exception_ptr errors[2];
  const auto run = [&errors](int which, const std::function<void()>& f) {
    try {
      f();
    } catch (...) {
      errors[which] = std::current_exception();
    }
  };
  std::thread other([&] { run(1, b); });
  run(0, a);
  other.join();
  for (const auto& error : errors) {
    if (error) {
      std::rethrow_exception(error);
    }
  }
}

TEST(CasesA, A12_OneThreadTrainsAnotherEvaluates) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    std::vector<torch::Tensor> trained, evaluated;
    together(
        [&] {
          for (int i = 0; i < 20; ++i) {
            auto y = net(x);
            y.pow(2).sum().backward();
            trained.push_back(y);
          }
        },
        [&] {
          const torch::NoGradGuard no_grad;
          for (int i = 0; i < 20; ++i) {
            evaluated.push_back(net(x));
          }
        });
    run.note("trained", trained);
    run.note("evaluated", evaluated);
    run.note_module("net", *net);
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 38);
  EXPECT_COUNTERS(report.total, program_backwards == 19);
}

TEST(CasesA, A12_OneThreadUnderAutocast) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    std::vector<torch::Tensor> plain, cast;
    together(
        [&] {
          for (int i = 0; i < 20; ++i) {
            plain.push_back(net(x));
          }
        },
        [&] {
          at::autocast::set_autocast_enabled(at::kCPU, true);
          for (int i = 0; i < 20; ++i) {
            cast.push_back(net(x));
          }
          at::autocast::clear_cache();
          at::autocast::set_autocast_enabled(at::kCPU, false);
        });
    run.note("plain", plain);
    run.note("cast", cast);
  });
  // Results are kept, so for a while their backward may still come.
  EXPECT_COUNTERS(
      report.total,
      eager == 16 && because("waiting for the backward of a traced call"));
  EXPECT_COUNTERS(
      report.total, traces == 2 && program_calls == 22 && graphs <= 2);
}

TEST(CasesA, A12_TrainingStepsBesideAutocast) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    torch::optim::SGD steps(net->parameters(), 0.1);
    auto x = torch::randn({3, 4});
    auto leaf = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 10; ++i) {
      torch::Tensor trained, cast, slope;
      steps.zero_grad();
      together(
          [&] {
            trained = net(x);
            trained.pow(2).sum().backward();
          },
          [&] {
            at::autocast::set_autocast_enabled(at::kCPU, true);
            cast = net(leaf);
            at::autocast::clear_cache();
            at::autocast::set_autocast_enabled(at::kCPU, false);
            slope = torch::autograd::grad({cast.sum()}, {leaf})[0];
          });
      steps.step();
      run.note("trained", trained);
      run.note("cast", cast);
      run.note("slope", slope);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2 && graphs <= 2);
  EXPECT_COUNTERS(report.total, program_calls == 18 && program_backwards == 18);
}

TEST(CasesA, A13_EightThreadsMakeTheFirstCall) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    constexpr int kThreads = 8;
    std::vector<torch::Tensor> inputs, outputs(kThreads);
    for (int i = 0; i < kThreads; ++i) {
      inputs.push_back(torch::randn({2 + i, 4}));
    }
    std::atomic<int> waiting{kThreads};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const torch::AutoGradMode grad(i == 0);
        --waiting;
        while (waiting > 0) {
          std::this_thread::yield();
        }
        for (int k = 0; k < 5; ++k) {
          outputs[i] = net(inputs[i]);
        }
        if (i == 0) {
          run.attempt("backward", [&] { outputs[i].sum().backward(); });
        }
      });
    }
    for (auto& thread : threads) {
      thread.join();
    }
    run.note("outputs", outputs);
    run.note_module("net", *net);
  });
  // In the thread that trains, the second call finds the result of the first
  // still held; the third is compiled without the backward that comes at last.
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"waiting for the backward of a traced call", 1},
              {"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(
      report.total, calls == 40 && traces == 8 && program_calls == 31);
  EXPECT_COUNTERS(report.total, graphs <= 2 && compiles == graphs);
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(CasesA, A14_CreatedAndDestroyed) {
  torch::manual_seed(test_seed());
  const Counters before = temper::counters();
  int64_t warm = 0;
  std::weak_ptr<TwoLayersImpl> last;
  for (int i = 0; i < 200; ++i) {
    if (i == 50) {
      warm = resident_bytes();
    }
    TwoLayers net;
    net->compile();
    last = net.ptr();
    // Half a megabyte of results each, so that a leak would show.
    auto x = torch::randn({40000, 4});
    for (int k = 0; k < 3; ++k) {
      net(x).sum().backward();
    }
  }
  EXPECT_TRUE(last.expired());
  EXPECT_LT(resident_bytes() - warm, 64 << 20);
  const Counters all = subtract(temper::counters(), before);
  EXPECT_COUNTERS(all, eager == 0 && traces == 200 && graphs <= 1);
  EXPECT_COUNTERS(all, program_calls == 400 && program_backwards == 400);
}

TEST(CasesA, A14_FunctionsCreatedAndDestroyed) {
  torch::manual_seed(test_seed());
  runtime::default_store().clear();
  const Counters before = temper::counters();
  int64_t warm = 0;
  c10::weak_intrusive_ptr<at::TensorImpl> last(
      torch::zeros({1}).getIntrusivePtr());
  for (int i = 0; i < 200; ++i) {
    if (i == 50) {
      warm = resident_bytes();
    }
    // Half a megabyte that the function captures, and results of that size.
    auto w = torch::randn({30000, 4}).requires_grad_();
    last = c10::weak_intrusive_ptr<at::TensorImpl>(w.getIntrusivePtr());
    auto f = temper::compile([w](Tensor x) { return torch::tanh(x * w); });
    auto x = torch::randn({30000, 4});
    for (int k = 0; k < 3; ++k) {
      f(x).sum().backward();
    }
  }
  EXPECT_TRUE(last.expired());
  EXPECT_LT(resident_bytes() - warm, 64 << 20);
  const Counters all = subtract(temper::counters(), before);
  EXPECT_COUNTERS(all, eager == 0 && traces == 200 && compiles == 1);
  EXPECT_COUNTERS(all, program_calls == 400 && program_backwards == 400);
}

TEST(CasesA, A14_ANewGraphEachTime) {
  // Artifacts are kept for the life of the process; what they take is bounded.
  runtime::default_store().clear();
  const Counters before = temper::counters();
  int64_t warm = 0;
  for (int i = 0; i < 200; ++i) {
    if (i == 50) {
      warm = resident_bytes();
    }
    const auto code = [i](Tensor x) {
      for (int bit = 1; bit < 256; bit *= 2) {
        x = (i & bit) != 0 ? x.sin() : x.tanh();
      }
      return x;
    };
    auto f = temper::compile(code);
    for (int k = 0; k < 3; ++k) {
      auto x = torch::ones({3}).requires_grad_();
      auto y = f(x);
      y.sum().backward();
      EXPECT_TRUE(y.equal(code(x)));
    }
  }
  constexpr int64_t kMostBytesOfAGraph = 64 << 10;
  EXPECT_LT(resident_bytes() - warm, 150 * kMostBytesOfAGraph);
  const Counters all = subtract(temper::counters(), before);
  EXPECT_COUNTERS(all, eager == 0 && graphs == 200 && compiles == 200);
  EXPECT_COUNTERS(all, program_calls == 400 && program_backwards == 400);
}

TEST(CasesA, A15_CloneWhileABackwardIsPending) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    // Pending of a traced call, of a shadowed one, of an admitted one.
    for (int i = 0; i < 4; ++i) {
      net->zero_grad();
      auto y = net(x);
      TwoLayers copy(std::dynamic_pointer_cast<TwoLayersImpl>(net->clone()));
      {
        const torch::NoGradGuard no_grad;
        for (auto& p : copy->parameters()) {
          p.mul_(2);
        }
      }
      auto z = copy(x);
      y.pow(2).sum().backward();
      run.note("y", y);
      run.note_module("net", *net);
      run.note_grad("copy", copy->first->weight);
      z.pow(2).sum().backward();
      run.note("z", z);
      run.note_module("net", *net);
      run.note_module("copy", *copy);
    }
  });
  // Each copy is traced.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 5 && program_calls == 3);
  EXPECT_COUNTERS(report.total, program_backwards == 3);
}

TEST(CasesA, A15_CloneHasItsOwnWeights) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    for (int i = 0; i < 3; ++i) {
      run.note("y", net(x));
    }
    TwoLayers copy(std::dynamic_pointer_cast<TwoLayersImpl>(net->clone()));
    {
      const torch::NoGradGuard no_grad;
      copy->first->weight.mul_(2);
      net->second->bias.add_(1);
    }
    for (int i = 0; i < 3; ++i) {
      auto a = net(x);
      auto b = copy(x);
      run.note("net", a);
      run.note("copy", b);
      (a.sum() + 2 * b.sum()).backward();
      run.note_module("net", *net);
      run.note_module("copy", *copy);
    }
    net = TwoLayers(nullptr);
    run.note("copy", copy(x));
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 1 && because("a backward of a kind not seen before"));
  EXPECT_COUNTERS(report.total, program_calls == 7 && graphs <= 2);
  EXPECT_COUNTERS(report.total, traces == 3 && program_backwards == 3);
}

TEST(CasesA, A15_CompiledTwice) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto x = torch::randn({3, 4});
    for (int i = 0; i < 6; ++i) {
      run.compile(net);
      auto y = net(x);
      y.sum().backward();
      run.note("y", y);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 1 && graphs <= 1);
  EXPECT_COUNTERS(report.total, program_calls == 5 && program_backwards == 5);
}

TEST(CasesA, A15_StateDictIsThatOfThePlainModule) {
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    const auto note_keys = [&] {
      for (const auto& entry : net->named_parameters()) {
        run.note("parameter", entry.key());
      }
      for (const auto& entry : net->named_buffers()) {
        run.note("buffer", entry.key());
      }
      for (const auto& entry : net->named_modules()) {
        run.note("module", entry.key() + " " + entry.value()->name());
      }
    };
    note_keys();
    for (int i = 0; i < 3; ++i) {
      net(torch::randn({3, 4})).sum().backward();
    }
    note_keys();
    std::stringstream archive;
    torch::save(net, archive);
    NoisyNet plain;
    torch::load(plain, archive);
    run.note_module("loaded", *plain);
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 2);
}

TEST(CasesA, A8_HooksOnAnInnerModulesParameter) {
  // LibTorch's modules have no hooks of their own in C++.
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    int64_t fired = 0;
    unsigned hook = 0;
    for (int i = 0; i < 10; ++i) {
      if (i == 4) {
        hook = net->first->weight.register_hook([&fired](torch::Tensor grad) {
          ++fired;
          return grad * 2;
        });
      } else if (i == 7) {
        net->first->weight.remove_hook(hook);
      }
      net->zero_grad();
      net(torch::randn({3, 4})).sum().backward();
      run.note_module("net", *net);
      run.note("fired", fired);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 1 && traces == 1);
  EXPECT_COUNTERS(report.total, program_calls == 9 && program_backwards == 9);
}

/// A field that notices when it is copied or asked.
struct Watchful {
  static inline int64_t copies = 0;
  static inline int64_t questions = 0;
  double value = 2.0;

  Watchful() = default;
  Watchful(const Watchful& other) : value(other.value) {
    ++copies;
  }
  Watchful& operator=(const Watchful& other) {
    value = other.value;
    ++copies;
    return *this;
  }
  double get() const {
    ++questions;
    return value;
  }
  operator double() const {
    return get();
  }
};
struct WatchfulNetImpl : temper::Module<WatchfulNetImpl> {
  Watchful gain;
  void reset() override {}
  torch::Tensor forward(torch::Tensor x) {
    return x * gain.value;
  }
};
TEMPER_MODULE(WatchfulNet);

TEST(CasesA, A16_FieldsAreSeenAndNeverCopiedOrAsked) {
  const auto report = expect_same([](Trial& run) {
    Watchful::copies = 0;
    Watchful::questions = 0;
    WatchfulNet net;
    run.compile(net);
    for (int i = 0; i < 8; ++i) {
      if (i == 4) {
        net->gain.value = 3.0;
      }
      run.note("y", net(torch::ones({2})));
    }
    run.note("copies", Watchful::copies);
    run.note("questions", Watchful::questions);
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 6);
}

} // namespace
} // namespace temper::testing
