// Case H13: a TorchScript child in its first runs, when its own executor still
// changes what it runs, and warm.
#include <gtest/gtest.h>
#include <torch/csrc/jit/python/update_graph_executor_opt.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <cstdint>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

// What says how TorchScript runs its graphs.
int64_t executor_mode() {
  return int64_t{torch::jit::getGraphExecutorOptimize()} +
      2 * int64_t{torch::jit::getExecutorMode()} +
      4 * int64_t{torch::jit::getProfilingMode()};
}

struct Way {
  bool grad = false;
  int warm_runs = 0; ///< Of the script, before the first compiled call.
  bool runs_between = false; ///< The script runs plainly after each call.
};

// Eight calls of a function that runs a script, whose executor is left as it
// is: it profiles the first runs and optimises later ones.
Report call_script(const Way& way) {
  Settings settings;
  if (way.grad) {
    settings = {
        {1e-5, 1e-6},
        "TorchScript derives gradients by formulas of its own, where a "
        "compiled call has those of its operators"};
  }
  return expect_same(
      [&](Trial& run) {
        const torch::AutoGradMode mode(way.grad);
        torch::jit::Module script("m");
        script.register_parameter("w", torch::full({4}, 0.5), false);
        script.define(R"(
          def forward(self, x):
              y = x * self.w + 1
              # Optimised it would take the sigmoid once.
              y = torch.relu(y) * torch.sigmoid(y) + torch.sigmoid(y)
              return y.sum(1)
        )");
        const auto run_plainly = [&] {
          return script.forward({torch::ones({3, 4})}).toTensor();
        };
        for (int i = 0; i < way.warm_runs; ++i) {
          run_plainly();
        }
        const auto before = executor_mode();
        auto f = run.compile_function(
            [&script](Tensor x) { return script.forward({x}).toTensor() * 2; },
            script);
        for (int i = 0; i < 8; ++i) {
          auto x = torch::randn({3, 4}).requires_grad_(way.grad);
          auto y = f(x);
          run.note("y", y);
          if (way.grad) {
            y.pow(2).sum().backward();
            run.note_grad("x", x);
          }
          if (way.runs_between) {
            run.note("plain", run_plainly());
          }
          EXPECT_EQ(executor_mode(), before);
        }
      },
      settings);
}

void expect_compiled(const Way& way) {
  const auto report = call_script(way);
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(
      report.total,
      shadow_runs == 1 && admissions == 1 &&
          program_backwards == (way.grad ? 7 : 0));
}

TEST(CasesH, H13_ScriptChildInItsFirstRuns) {
  expect_compiled({});
  expect_compiled({.grad = true});
}

TEST(CasesH, H13_ScriptChildThatIsWarm) {
  for (const int warm_runs : {1, 2, 5}) {
    expect_compiled({.warm_runs = warm_runs});
    expect_compiled({.grad = true, .warm_runs = warm_runs});
  }
}

TEST(CasesH, H13_ScriptChildThatAlsoRunsPlainly) {
  expect_compiled({.runs_between = true});
  expect_compiled({.grad = true, .runs_between = true});
}

} // namespace
} // namespace temper::testing
