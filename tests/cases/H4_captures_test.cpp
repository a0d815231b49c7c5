// Cases H4 to H7: captures, function objects, fields in branches, threads.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cstddef>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <variant>

#include "nets.h"
#include "support/compare.h"
#include "threads.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

TEST(CasesH, H4_CapturedByReference) {
  const auto report = expect_same([](Trial& run) {
    auto w = torch::ones({4});
    double scale = 2;
    auto f = run.compile_function(
        [&w, &scale](Tensor x) { return x * w * scale; }, w, scale);
    for (int i = 0; i < 10; ++i) {
      run.note("y", f(torch::ones({4})));
      if (i % 3 == 2) {
        w = w - 0.5;
      }
      if (i % 5 == 4) {
        scale = 0.5 * (i + 2);
      }
    }
  });
  // `w` is another tensor three times, `scale` another number once.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 5 && program_calls == 5);
}

TEST(CasesH, H4_CapturedByReferenceNotDeclared) {
  const auto report = expect_same([](Trial& run) {
    auto w = torch::ones({4});
    TwoLayers net;
    auto f =
        run.compile_function([&](Tensor x) { return net->forward(x * w); });
    for (int i = 0; i < 8; ++i) {
      auto y = f(torch::ones({2, 4}));
      run.note("y", y);
      y.sum().backward();
      run.note_module("net", *net);
      if (i % 3 == 2) {
        w = w - 0.5;
      }
      if (i == 5) {
        net = TwoLayers();
      }
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 8 && because("bytes 0..7 of 'the function's captures' point "));
  EXPECT_COUNTERS(report.total, traces == 0 && program_calls == 0);
}

TEST(CasesH, H4_CapturedByValue) {
  const auto report = expect_same([](Trial& run) {
    auto w = torch::ones({4}).requires_grad_();
    auto f = run.compile_function(
        [w, factor = 1.5](Tensor x) { return x * w * factor; });
    for (int i = 0; i < 6; ++i) {
      auto y = f(torch::ones({4}));
      run.note("y", y);
      y.sum().backward();
      run.note_grad("w", w);
      const torch::NoGradGuard no_grad;
      w.add_(1);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesH, H4_MutableLambda) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [n = 0, sum = torch::zeros({3})](Tensor x) mutable {
          ++n;
          sum = sum + x;
          return sum / n;
        });
    for (int i = 0; i < 8; ++i) {
      run.note("mean", f(torch::randn({3})));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 4 && traces == 4 && graphs == 0);
  EXPECT_COUNTERS(
      report.total,
      because("the call changes watched state: 'the function's captures': "));
  EXPECT_COUNTERS(report.total, program_calls == 0);
}

struct Strategy {
  virtual ~Strategy() = default;
  virtual Tensor apply(const Tensor& x) = 0;
};
struct Doubles : Strategy {
  Tensor apply(const Tensor& x) override {
    return x * 2;
  }
};
struct Squares : Strategy {
  double factor = 1;
  Tensor apply(const Tensor& x) override {
    return x.pow(2) * factor;
  }
};

/// Calls through what may be swapped.
struct SwappableImpl : temper::Module<SwappableImpl> {
  nn::Linear fc{nullptr};
  std::function<Tensor(const Tensor&)> activation;
  Tensor (*pointer)(const Tensor&) = &torch::relu;
  std::shared_ptr<Strategy> strategy = std::make_shared<Doubles>();

  SwappableImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
    activation = [](const Tensor& x) { return x.tanh(); };
  }
  Tensor forward(Tensor x) {
    return strategy->apply(pointer(activation(fc(x))));
  }
};
TEMPER_MODULE(Swappable);

TEST(CasesH, H5_FunctionsSwapped) {
  std::string where;
  const auto report = expect_same([&where](Trial& run) {
    Swappable net;
    const auto offset = reinterpret_cast<std::byte*>(&net->strategy) -
        reinterpret_cast<std::byte*>(net.get());
    where =
        "bytes " + std::to_string(offset) + ".." + std::to_string(offset + 7);
    run.compile(net);
    const auto call = [&] {
      for (int i = 0; i < 3; ++i) {
        auto y = net(torch::ones({2, 4}));
        run.note("y", y);
        y.sum().backward();
        run.note_module("net", *net);
      }
    };
    call();
    net->activation = [](const Tensor& x) { return x.sigmoid(); };
    call();
    net->pointer = &torch::exp;
    call();
    auto squares = std::make_shared<Squares>();
    net->strategy = squares;
    call();
    squares->factor = 3;
    call();
    const double shift = 0.25;
    net->activation = [shift](const Tensor& x) { return x + shift; };
    call();
  });
  // Functions are watched, what the pointer leads to is not.
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {where +
                   " of 'SwappableImpl' (SwappableImpl) point to memory whose "
                   "content can't be watched (of a container, a long string, a "
                   "pointer); list that field in TEMPER_FIELDS(...), or in "
                   "TEMPER_IGNORE(...) if no result depends on it. gdb's "
                   "'ptype /o SwappableImpl' tells which field it is",
               18}});
  EXPECT_COUNTERS(report.total, traces == 0 && program_calls == 0);
}

// What TEMPER_FIELDS lists is all of this class, and not of those derived.
struct Declared {
  virtual ~Declared() = default;
  virtual Tensor apply(const Tensor& x) const {
    return x * factor;
  }
  double factor = 2;
  TEMPER_FIELDS(factor)
};
struct Derived : Declared {
  Tensor apply(const Tensor& x) const override {
    return x.pow(2) * factor;
  }
};
struct DeclaringImpl : temper::Module<DeclaringImpl> {
  std::shared_ptr<Declared> strategy = std::make_shared<Declared>();
  void reset() override {}
  Tensor forward(Tensor x) {
    return strategy->apply(x);
  }
  TEMPER_FIELDS(strategy)
};
TEMPER_MODULE(Declaring);

TEST(CasesH, H5_AStrategyThatIsDeclared) {
  const auto report = expect_same([](Trial& run) {
    Declaring net;
    run.compile(net);
    const auto call = [&] {
      for (int i = 0; i < 4; ++i) {
        run.note("y", net(torch::full({3}, 3.0)));
      }
    };
    call();
    net->strategy->factor = 3;
    call();
    net->strategy = std::make_shared<Derived>();
    call();
    net->strategy = std::make_shared<Declared>();
    call();
  });
  // Of the derived one nothing is compiled.
  EXPECT_COUNTERS(
      report.total,
      program_calls == 10 && traces == 5 &&
          reasons ==
              Reasons{
                  {"the call changes watched state: field 'strategy' changed",
                   1}});
}

struct TimesTwo {
  Tensor apply(const Tensor& x) const {
    return x * 2;
  }
};
struct Power {
  double factor = 1;
  Tensor apply(const Tensor& x) const {
    return x.pow(2) * factor;
  }
};

/// The remedy: a variant has a content that can be watched.
struct ChoosingImpl : temper::Module<ChoosingImpl> {
  nn::Linear fc{nullptr};
  std::shared_ptr<std::variant<TimesTwo, Power>> strategy =
      std::make_shared<std::variant<TimesTwo, Power>>();

  ChoosingImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
  }
  Tensor forward(Tensor x) {
    auto y = fc(x);
    return std::visit([&](const auto& s) { return s.apply(y); }, *strategy);
  }
  TEMPER_FIELDS(strategy)
};
TEMPER_MODULE(Choosing);

TEST(CasesH, H5_AStrategyAsAVariant) {
  const auto report = expect_same([](Trial& run) {
    Choosing net;
    run.compile(net);
    const auto call = [&] {
      for (int i = 0; i < 4; ++i) {
        auto y = net(torch::ones({2, 4}));
        run.note("y", y);
        y.sum().backward();
        run.note_module("net", *net);
      }
    };
    call();
    *net->strategy = Power{};
    call();
    std::get<Power>(*net->strategy).factor = 3;
    call();
    net->strategy = std::make_shared<std::variant<TimesTwo, Power>>();
    call();
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 3 && admissions == 3);
  EXPECT_COUNTERS(report.total, program_calls == 13 && program_backwards == 13);
}

struct BranchingImpl : temper::Module<BranchingImpl> {
  nn::Linear fc{nullptr};
  double gain = 1;
  bool squash = false;

  BranchingImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 3));
  }
  virtual Tensor last(const Tensor& x) {
    return x;
  }
  Tensor forward(Tensor x) {
    auto y = fc(x) * gain;
    if (gain > 2) {
      y = y.tanh();
    }
    if (squash) {
      y = y.sigmoid();
    }
    return last(y);
  }
};
TEMPER_MODULE(Branching);

TEST(CasesH, H6_FieldAsFactorAndInABranch) {
  const auto report = expect_same([](Trial& run) {
    Branching net;
    run.compile(net);
    for (int i = 0; i < 24; ++i) {
      net->gain = 0.25 * (i % 12);
      net->squash = i % 5 == 0;
      auto y = net(torch::ones({2, 4}));
      run.note("y", y);
      y.sum().backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && program_calls == 7 && graphs <= 4);
  EXPECT_COUNTERS(report.total, traces == 17 && program_backwards == 7);
}

/// A subclass with a field of its own, behind the parts its base declares.
struct ShiftedImpl : BranchingImpl {
  double shift = 0.5;
  Tensor last(const Tensor& x) override {
    return x + shift;
  }
};

TEST(CasesH, H6_SubclassOfACompiledClass) {
  const auto report = expect_same([](Trial& run) {
    auto derived = std::make_shared<ShiftedImpl>();
    Branching net(std::static_pointer_cast<BranchingImpl>(derived));
    run.compile(net);
    for (int i = 0; i < 9; ++i) {
      derived->shift = static_cast<double>(i / 3);
      run.note("y", net(torch::ones({2, 4})));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 9 && because("the fields of 'ShiftedImpl'"));
  EXPECT_COUNTERS(report.total, traces == 0 && program_calls == 0);
}

struct KnownShiftedImpl : BranchingImpl {
  double shift = 0.5;
  Tensor last(const Tensor& x) override {
    return x + shift;
  }
};
struct ExponentialImpl : BranchingImpl {
  Tensor last(const Tensor& x) override {
    return x.exp();
  }
};

TEST(CasesH, H6_KnownSubclassBehindAHolderOfItsBase) {
  temper::know_modules<KnownShiftedImpl, ExponentialImpl>();
  const auto report = expect_same([](Trial& run) {
    auto derived = std::make_shared<KnownShiftedImpl>();
    Branching net(std::static_pointer_cast<BranchingImpl>(derived));
    run.compile(net);
    for (int i = 0; i < 12; ++i) {
      derived->shift = static_cast<double>(i / 3);
      net->gain = i < 9 ? 1.0 : 3.0;
      auto y = net(torch::ones({2, 4}));
      run.note("y", y);
      y.sum().backward();
      run.note_module("net", *net);
    }
    // Another subclass in the same holder.
    net = Branching(std::static_pointer_cast<BranchingImpl>(
        std::make_shared<ExponentialImpl>()));
    run.compile(net);
    for (int i = 0; i < 3; ++i) {
      auto y = net(torch::ones({2, 4}));
      run.note("y", y);
      y.sum().backward();
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 5 && program_calls == 10);
  EXPECT_COUNTERS(report.total, program_backwards == 10);
}

// Values of the code under test in `calls` calls on other inputs each time.
template <class Code, class... State>
Report expect_values(const Code& code, State&... state) {
  return expect_same([&](Trial& run) {
    auto f = run.compile_function(code, state...);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3, 4});
      run.attempt("call", [&] { run.note("y", f(x)); });
      run.note("x", x);
    }
  });
}

TEST(CasesH, H7_ThreadsInside) {
  const auto report = expect_values([](Tensor x) {
    Tensor half;
    std::thread worker([&] { half = x * 0.5; });
    auto other = std::async(std::launch::async, [&] { return x.exp(); });
    worker.join();
    return half + other.get() + x;
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 5 &&
          because("aten::add.Tensor uses a tensor of unknown origin, of sizes "
                  "[3, 4]: "));
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H7_ThreadsOnResultsOfOperators) {
  // The other thread uses what a traced operator made.
  const auto report = expect_values([](Tensor x) {
    auto y = x.sin();
    auto later = std::async(std::launch::async, [y] { return y.cos() + 1; });
    return later.get() * y;
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 5 &&
          because("aten::mul.Tensor uses a tensor of unknown origin, of sizes "
                  "[3, 4]: "));
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

// Writes each row in a loop that ATen's threads share.
Tensor rows_in_parallel(Tensor x) {
  auto y = torch::empty({3, 4});
  at::parallel_for(0, 3, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      y[i].copy_(x[i] * static_cast<double>(i + 1));
    }
  });
  return y * 2;
}

TEST(CasesH, H7_ParallelFor) {
  const ThreadCount two(2);
  const auto report = expect_values(&rows_in_parallel);
  // The trace tells, or the shadow run: it depends on what the call's own
  // thread does at that moment.
  EXPECT_COUNTERS(
      report.total,
      because("the data of a tensor is read outside of tensor ops"));
  EXPECT_COUNTERS(report.total, program_calls == 0);
}

TEST(CasesH, H7_ParallelForOnOneThread) {
  // There is no other thread that would work on shadows.
  const ThreadCount one(1);
  const auto report = expect_values(&rows_in_parallel);
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
}

TEST(CasesH, H7_RandomEngineOfTheUser) {
  // Its state is memory that no operator reads.
  const auto report = expect_same([](Trial& run) {
    std::mt19937 engine(7);
    auto f = run.compile_function([&engine](Tensor x) {
      std::uniform_real_distribution<double> draw(0, 1);
      return x * draw(engine);
    });
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::ones({3})));
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 6 && because("bytes 0..7 of 'the function's captures' point "));
  EXPECT_COUNTERS(report.total, traces == 0 && program_calls == 0);
}

struct EngineImpl : temper::Module<EngineImpl> {
  std::mt19937 engine{7};
  bool draws = true;

  void reset() override {}
  Tensor forward(Tensor x) {
    if (!draws) {
      return x * 2;
    }
    std::uniform_real_distribution<double> uniform(0, 1);
    return x * uniform(engine);
  }
};
TEMPER_MODULE(Engine);

TEST(CasesH, H7_RandomEngineAsAField) {
  const auto report = expect_same([](Trial& run) {
    Engine net;
    run.compile(net);
    for (int i = 0; i < 6; ++i) {
      run.note("y", net(torch::ones({3})));
      run.note("next", static_cast<int64_t>(std::mt19937(net->engine)()));
    }
    net->engine.seed(7);
    run.note("y", net(torch::ones({3})));
    run.note("next", static_cast<int64_t>(std::mt19937(net->engine)()));
  });
  EXPECT_COUNTERS(
      report.total, because("the call changes watched state: 'EngineImpl'"));
  EXPECT_COUNTERS(
      report.total, eager == 3 && traces == 4 && program_calls == 0);
}

TEST(CasesH, H7_RandomEngineAsAFieldNotUsed) {
  const auto report = expect_same([](Trial& run) {
    Engine net;
    net->draws = false;
    run.compile(net);
    for (int i = 0; i < 6; ++i) {
      run.note("y", net(torch::ones({3})));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
}

TEST(CasesH, H7_StaticLocalCache) {
  const auto report = expect_values([](Tensor x) {
    static const Tensor table = torch::linspace(0, 1, 4);
    return x * table;
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 5 &&
          because("aten::mul.Tensor uses a tensor of unknown origin, of sizes "
                  "[4]: "));
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H7_ALogLineEachCall) {
  // Values are promised, lines are not: in admitted calls the code does not
  // run.
  static std::vector<std::string> log;
  log.clear();
  const auto report = expect_values([](Tensor x) {
    log.push_back("call on " + std::to_string(x.size(0)) + " rows");
    return x + 1;
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  if (!has_mutant()) {
    // Six calls without temper; and of six with it, the traced and the
    // shadowed.
    EXPECT_EQ(log.size(), disabled() ? 12U : 8U);
  }
}

} // namespace
} // namespace temper::testing
