// Neighbours of H1, H3 and H8: what code does in the call that is shadowed
// only, and only where its operators are through or beside them. Matching the
// operators does not tell; the checks at the end of the shadow run do.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

// Which call of a scenario it is: the code can see it, guards can't.
int64_t call_number = 0;

// The first is traced, the second shadowed.
bool is_shadowed() {
  return call_number == 1;
}

// Calls `f` six times, and `after` each call.
template <class F>
Report expect_calls(
    F f,
    void (*after)() = [] {}) {
  return expect_same([f, after](Trial& run) {
    auto compiled = run.compile_function(f);
    for (int64_t i = 0; i < 6; ++i) {
      call_number = i;
      run.note("y", compiled(torch::randn({3, 2})));
      run.note_generator();
      after();
    }
  });
}

// The second call is eager, the third traced, the fourth shadowed.
void expect_one_divergence(const Report& report, const std::string& why) {
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"differs from call to call: " + why, 1}});
  EXPECT_COUNTERS(
      report.total,
      calls == 6 && traces == 2 && shadow_runs == 2 && admissions == 1 &&
          program_calls == 3);
}

TEST(CasesH, Shadowed_ResultOfAnotherStructure) {
  const char* const reason = "the result has another structure";
  const auto longer = expect_calls([](Tensor x) {
    auto y = x * 2;
    return is_shadowed() ? std::vector<Tensor>{y, y} : std::vector<Tensor>{y};
  });
  expect_one_divergence(longer, reason);
  // No tensor is another one then.
  const auto number = expect_calls([](Tensor x) {
    return std::make_tuple(x * 2, int64_t{is_shadowed() ? 5 : 7});
  });
  expect_one_divergence(number, reason);
}

TEST(CasesH, Shadowed_CodeThatEndsBeforeItsTrace) {
  const auto report = expect_calls([](Tensor x) {
    auto y = x * 2;
    auto z = x.sin();
    if (!is_shadowed()) {
      z.add_(y);
    }
    return z;
  });
  expect_one_divergence(report, "the code ended before its trace");
}

/// Changes a field that it reads.
struct RampImpl : temper::Module<RampImpl> {
  double gain = 2;
  void reset() override {}
  Tensor forward(Tensor x) {
    auto y = x * gain;
    if (is_shadowed()) {
      gain = 3;
    }
    return y;
  }
};
TEMPER_MODULE(Ramp);

// A new value is a new signature.
TEST(CasesH, Shadowed_WatchedStateIsChanged) {
  const auto report = expect_same([](Trial& run) {
    Ramp net;
    run.compile(net);
    for (int64_t i = 0; i < 6; ++i) {
      call_number = i;
      run.note("y", net(torch::randn({3, 2})));
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 1 &&
          because("differs from call to call: the call changed watched state: "
                  "'RampImpl': field at bytes ") &&
          because(" (as a double 2) to 4613937818241073152 (as a double 3)"));
  EXPECT_COUNTERS(
      report.total,
      calls == 6 && traces == 2 && shadow_runs == 2 && admissions == 1 &&
          program_calls == 3);
}

constexpr const char* kGenerator =
    "random numbers were drawn or seeded outside of tensor ops";

TEST(CasesH, Shadowed_GeneratorIsSeeded) {
  const auto report = expect_calls([](Tensor x) {
    auto y = x * 2;
    if (is_shadowed()) {
      torch::manual_seed(11);
    }
    return y;
  });
  expect_one_divergence(report, kGenerator);
}

TEST(CasesH, Shadowed_GeneratorIsDrawnFrom) {
  const auto report = expect_calls([](Tensor x) {
    auto y = x * 2;
    if (is_shadowed()) {
      auto generator = at::detail::getDefaultCPUGenerator();
      const std::scoped_lock lock(generator.mutex());
      at::check_generator<at::CPUGeneratorImpl>(generator)->random();
    }
    return y;
  });
  expect_one_divergence(report, kGenerator);
}

TEST(CasesH, Shadowed_ThreadStateIsLeftChanged) {
  const auto dtype = expect_calls(
      [](Tensor x) {
        auto y = x * 2;
        if (is_shadowed()) {
          torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
        }
        return y;
      },
      [] { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); });
  expect_one_divergence(
      dtype,
      "the call changes the thread's state: default dtype was Float, now "
      "Double");
  const auto grad = expect_calls(
      [](Tensor x) {
        auto y = x * 2;
        if (is_shadowed()) {
          torch::GradMode::set_enabled(false);
        }
        return y;
      },
      [] { torch::GradMode::set_enabled(true); });
  expect_one_divergence(
      grad, "the call changes the thread's state: grad mode was on, now off");
}

/// Writes to its argument, more than once.
struct WriterImpl : temper::Module<WriterImpl> {
  void reset() override {}
  Tensor forward(Tensor x) {
    auto y = x * 2;
    if (is_shadowed()) {
      x.mul_(3);
      x.add_(1);
    }
    return y;
  }
};
TEMPER_MODULE(Writer);

TEST(CasesH, Shadowed_AViewWithAHistoryIsWrittenMoreThanOnce) {
  if (disabled()) {
    return;
  }
  // What is no view gets both.
  const auto plain = expect_same([](Trial& run) {
    Writer net;
    run.compile(net);
    for (int64_t i = 0; i < 6; ++i) {
      call_number = i;
      auto w = torch::randn({3, 2}).requires_grad_();
      auto x = w * 2;
      run.note("y", net(x));
      x.sum().backward();
      run.note_grad("w", w);
    }
  });
  static_cast<void>(plain);
  Writer net;
  net->compile();
  for (int64_t i = 0; i < 6; ++i) {
    call_number = i;
    auto w = torch::ones({3, 2}).requires_grad_();
    auto base = w * 2;
    auto x = base.view({6});
    std::string error = "no error";
    try {
      const auto y = net(x);
      EXPECT_TRUE(y.equal(torch::full({6}, 4.0)));
      y.sum().backward();
      EXPECT_TRUE(w.grad().equal(torch::full({3, 2}, 4.0)));
    } catch (const temper::Error& thrown) {
      error = thrown.what_without_backtrace();
    }
    EXPECT_EQ(
        error,
        i != 1 ? "no error"
               : "temper: in 'Writer' the call wrote to 'argument 0', a view "
                 "with a history, more than once, where an earlier call did "
                 "something else; it has its values but not its gradients. "
                 "Call it without compile(), or write to a clone");
    EXPECT_TRUE(x.equal(torch::full({6}, i == 1 ? 7.0 : 2.0)));
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      traces == 2 && admissions == 1 && program_calls == 3 && eager == 0);
}

// A random operator before that has not run yet: the code starts again.
TEST(CasesH, Shadowed_GeneratorIsSeededBehindAnOperatorThatDraws) {
  const auto report = expect_calls([](Tensor x) {
    auto y = x * torch::rand({2});
    if (is_shadowed()) {
      torch::manual_seed(11);
    }
    return y;
  });
  expect_one_divergence(report, kGenerator);
}

TEST(CasesH, Shadowed_GeneratorIsDrawnFromBehindAnOperatorThatDraws) {
  const auto report = expect_calls([](Tensor x) {
    auto y = x * torch::rand({2});
    if (is_shadowed()) {
      auto generator = at::detail::getDefaultCPUGenerator();
      const std::scoped_lock lock(generator.mutex());
      at::check_generator<at::CPUGeneratorImpl>(generator)->random();
    }
    return y;
  });
  expect_one_divergence(report, kGenerator);
}

// The exception that is to unwind it is swallowed, and later calls are compiled
// all the same.
TEST(CasesH, Shadowed_GeneratorIsSeededAndExceptionsAreSwallowed) {
  const auto report = expect_calls([](Tensor x) {
    auto y = x * torch::rand({2});
    if (is_shadowed()) {
      torch::manual_seed(11);
      try {
        y = y.sin();
      } catch (const std::exception&) {
        return y;
      }
    }
    return y;
  });
  expect_one_divergence(report, kGenerator);
}

} // namespace
} // namespace temper::testing
