// Case B4 further: a retained graph that several backwards go through at once,
// one inside another or in several threads.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using torch::autograd::grad;

TEST(CasesB, B4_BackwardInAHookOfABackward) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor x, Tensor w) { return torch::tanh(x * w).pow(2); });
    for (int i = 0; i < 10; ++i) {
      if (i == 6) {
        run.steady();
      }
      auto w = torch::randn({3}).requires_grad_();
      auto x = torch::randn({3}).requires_grad_();
      auto loss = f(x, w).sum();
      Tensor inner;
      // Behind the compiled nodes, which the outer backward has left.
      x.register_hook([&](const Tensor&) {
        // Not while the backward is being recorded: that would stay eager.
        if (i >= 4 && !inner.defined()) {
          inner = torch::ones({});
          inner = grad({loss}, {x, w}, {}, /*retain_graph=*/true)[1];
        }
      });
      loss.backward({}, /*retain_graph=*/true);
      run.note("inner", inner.defined() ? inner : torch::zeros({}));
      run.note_grad("x", x);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(report.steady, program_calls == 4 && program_backwards == 8);
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 9);
}

// A backward of a kind that the call has not seen runs the code again, which
// must start from what was there before the call wrote.
template <class Code>
void expect_rerun_is_right(const Code& code) {
  const auto w = torch::randn({3}).requires_grad_();
  const auto x = torch::randn({3}).requires_grad_();
  const auto start = torch::full({3}, 0.5);
  auto state = start.clone();
  auto f = temper::compile(code);
  for (int i = 0; i < 4; ++i) {
    std::get<0>(f(x, w, state)).sum().backward();
  }
  state.copy_(start);
  const auto [a, b] = f(x, w, state);
  auto same_state = start.clone();
  const auto [c, d] = code(x, w, same_state);
  const auto expected = grad({(c + d).sum()}, {x, w});
  const auto found = grad({(a + b).sum()}, {x, w});
  EXPECT_TRUE(torch::equal(found[0], expected[0]));
  EXPECT_TRUE(torch::equal(found[1], expected[1]));
  EXPECT_TRUE(torch::equal(state, same_state));
  // The last backward.
  EXPECT_COUNTERS(
      f.counters(),
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(f.counters(), traces == 1 && program_calls == 4);
}

TEST(CasesB, B4_UnknownBackwardOfCodeThatWritesItsInput) {
  using Pair = std::tuple<Tensor, Tensor>;
  expect_rerun_is_right([](Tensor x, Tensor w, Tensor calls) -> Pair {
    calls.add_(1);
    return {(x * calls).tanh(), x * w};
  });
  expect_rerun_is_right([](Tensor x, Tensor w, Tensor h) -> Pair {
    auto next = (x * w + h).tanh();
    h.copy_(next.detach());
    return {next, x * w};
  });
  expect_rerun_is_right([](Tensor x, Tensor w, Tensor calls) -> Pair {
    calls.add_(1);
    return {(x * w).tanh(), x * w};
  });
  expect_rerun_is_right([](Tensor x, Tensor w, Tensor cache) -> Pair {
    cache.copy_(x.detach() * 2);
    return {(x * w * cache).tanh(), x * w};
  });
}

// Backwards at the same time. Every edge gets something here, so none is taken
// out (which another thread could not be protected from): each backward is
// right, or says that it can't be.
TEST(CasesB, B4_ThreadsThroughOneRetainedGraph) {
  auto w = torch::randn({64, 64}).requires_grad_();
  auto x = torch::randn({8, 64}).requires_grad_();
  const auto code = [](Tensor a, Tensor b) {
    auto y = torch::tanh(a.matmul(b));
    return torch::tanh(y.matmul(b)).pow(2).sum();
  };
  auto f = temper::compile(code);
  for (int i = 0; i < 4; ++i) {
    f(x, w).backward();
  }
  const auto loss = f(x, w);
  const auto expected = grad({code(x, w)}, {x, w});
  const auto go = [&] {
    return grad({loss}, {x, w}, {}, /*retain_graph=*/true);
  };
  std::atomic<int> right = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        try {
          const auto found = go();
          const bool same = torch::allclose(found[0], expected[0]) &&
              torch::allclose(found[1], expected[1]);
          ++(same ? right : wrong);
        } catch (const temper::Error& error) {
          const std::string text = error.what();
          ++(text.find("another backward") != std::string::npos ? refused
                                                                : wrong);
        } catch (const std::exception&) {
          ++wrong;
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  // Three before, and each that was right.
  EXPECT_COUNTERS(temper::counters_of(f), program_backwards == right + 3);
  // What was refused has left nothing behind.
  const auto after = go();
  EXPECT_TRUE(torch::allclose(after[0], expected[0]));
  EXPECT_TRUE(torch::allclose(after[1], expected[1]));
}

} // namespace
} // namespace temper::testing
