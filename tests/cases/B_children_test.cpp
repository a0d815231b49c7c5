// Cases B further: what runs again for a backward, with compiled children, with
// histories that are gone, and after a backward that released the graph.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using torch::autograd::grad;

struct ParentImpl : temper::Module<ParentImpl> {
  TwoLayers child{nullptr};
  torch::nn::Linear last{nullptr};

  ParentImpl() {
    reset();
  }
  void reset() override {
    child = register_module("child", TwoLayers());
    last = register_module("last", torch::nn::Linear(3, 4));
  }
  std::vector<Tensor> forward(Tensor x) {
    const auto h = torch::tanh(last(child(x))) + x;
    return {h.sin(), h.cos(), h.exp()};
  }
};
TEMPER_MODULE(Parent);

// The child would make nodes of its own, which the gradients of the new run
// must not end at.
TEST(CasesB, Reruns_WithACompiledChild) {
  const auto report = expect_same([](Trial& run) {
    Parent net;
    run.compile(net->child);
    run.compile(net);
    for (int i = 0; i < 24; ++i) {
      net->zero_grad();
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = net(x);
      // Twice each, so that some reruns come after others.
      const auto& result = y[static_cast<size_t>(i / 2 % 3)];
      if (i % 4 < 2) {
        result.sum().backward();
      } else {
        result.pow(2).sum().backward();
      }
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 5}});
  EXPECT_COUNTERS(
      report.total, traces == 6 && admissions == 1 && program_backwards == 13);
}

TEST(CasesB, Reruns_OfAPartOfTheGradientsWithACompiledChild) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers child;
    run.compile(child);
    auto f = run.compile_function(
        [child](Tensor x) mutable { return child(x * 2).sin(); }, child);
    for (int i = 0; i < 10; ++i) {
      child->zero_grad();
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = f(x);
      if (i < 4) {
        y.backward(torch::randn({3, 3}));
      } else if (i % 3 == 1) {
        y.sum().backward();
      } else {
        y.backward(
            torch::randn({3, 3}), false, false, {{child->first->weight}});
      }
      run.note_grad("x", x);
      run.note_module("child", *child);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  EXPECT_COUNTERS(
      report.total, traces == 4 && admissions == 1 && program_backwards == 4);
}

// The node of an argument's history is gone when only that result is left from
// which nothing leads there.
TEST(CasesB, Reruns_WhereAnArgumentsHistoryIsGone) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor z) {
      auto h = z * 2;
      return std::make_tuple(h.sin() * x, h);
    });
    auto a = torch::randn({3}).requires_grad_();
    auto z = torch::randn({3}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      auto [y, h] = f(a * 3, z);
      (y.sum() + h.pow(2).sum()).backward();
      run.note_grad("a", a);
      run.note_grad("z", z);
    }
    auto h = std::get<1>(f(a * 3, z));
    std::vector<Tensor> others; // Where its memory was.
    for (int i = 0; i < 20; ++i) {
      others.push_back(a * i);
    }
    auto once = grad({(h * h).sum()}, {z}, {}, true, /*create_graph=*/true);
    run.note("once", once[0]);
    run.note("twice", grad({once[0].pow(2).sum()}, {z})[0]);
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a backward of a kind not seen before", 1},
              {"double backward (create_graph) through the call", 1}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 4);
}

// Hooks, retain_grad() and grad() of a result see the second derivatives that
// reach it, although these go through the graph of the new run.
TEST(CasesB, Reruns_SecondDerivativesReachTheResults) {
  for (int way = 0; way < 4; ++way) {
    const auto report = expect_same(
        [way](Trial& run) {
          auto f = run.compile_function([](Tensor x) {
            auto h = torch::tanh(x);
            auto inside = h * 3; // Through which a part reaches h.
            return std::make_tuple(h, inside.sin() * h);
          });
          for (int i = 0; i < 7; ++i) {
            auto x = torch::randn({3}, torch::kDouble).requires_grad_();
            auto [h, y] = f(x);
            if (i < 4) {
              (h.sum() + y.pow(2).sum()).backward();
              run.note_grad("x", x);
              continue;
            }
            if (way == 0) {
              h.retain_grad();
            } else if (way == 1) {
              h.register_hook([](const Tensor& g) { return g * 10; });
              y.register_hook([](const Tensor& g) { return g * 7; });
            }
            auto first = grad(
                {y.sum() + h.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
            run.note("first", first);
            if (way == 2) {
              auto both = grad({first.pow(2).sum()}, {h, x}, {}, true);
              run.note("h", both[0]);
              run.note("x", both[1]);
            } else if (way == 3) {
              auto second = grad(
                  {first.pow(2).sum()}, {x}, {}, true, /*create_graph=*/true);
              second[0].sum().backward();
            } else {
              (first.pow(2).sum() + y.sum()).backward();
            }
            run.note_grad("x", x);
            run.note_grad("h", h);
          }
        },
        {{1e-13, 1e-13},
         "the parts of a second derivative are added in another order"});
    EXPECT_COUNTERS(
        report.total, traces == 1 && program_calls >= 4 && eager >= 3);
  }
}

// The graph that a differentiable backward makes goes with its gradients.
TEST(CasesB, Reruns_GraphsOfSecondDerivativesAreFreed) {
  for (int i = 0; i < 2; ++i) {
    auto f = temper::compile([](Tensor x) {
      auto h = torch::tanh(x);
      return std::make_tuple(h, (h * 3).sin());
    });
    for (int k = 0; k < 5; ++k) {
      auto x = torch::randn({3}).requires_grad_();
      const c10::weak_intrusive_ptr<c10::TensorImpl> argument(
          x.getIntrusivePtr());
      {
        auto [h, y] = f(x);
        auto loss = y.sum() + h.sum();
        if (k < 4) {
          loss.backward();
        } else {
          auto g = grad({loss}, {x}, {}, true, /*create_graph=*/true)[0];
          if (i == 1) {
            g.sum().backward();
          }
        }
      }
      x.reset();
      EXPECT_TRUE(argument.expired()) << "call " << k;
    }
    EXPECT_COUNTERS(
        temper::counters_of(f), program_calls == 4 && program_backwards == 3);
  }
}

// A critic, a siamese net: the calls of one step get gradients of different
// kinds, the same in each step. Traces must not meet the same call each time.
TEST(CasesB, B5_CallsOfOneBackwardWithGradientsOfDifferentKinds) {
  for (const int count : {2, 3, 5}) {
    const auto report = expect_same([count](Trial& run) {
      TwoLayers net;
      run.compile(net);
      for (int i = 0; i < 24; ++i) {
        if (i == 16) {
          run.steady();
        }
        net->zero_grad();
        auto loss = torch::zeros({});
        for (int k = 0; k < count; ++k) {
          auto y = net(torch::randn({2, 4}));
          loss = loss +
              (k % 3 == 0       ? y
                   : k % 3 == 1 ? y.exp()
                                : y.mean(1, true))
                  .sum();
        }
        loss.backward();
        run.note_module("net", *net);
      }
    });
    EXPECT_COUNTERS(
        report.steady,
        eager == 0 && program_calls == count * 8 &&
            program_backwards == count * 8);
  }
}

// A node's saved tensors go with its first backward, whichever gradients that
// was asked for.
TEST(CasesB, B4_SecondBackwardThatNeedsNothingSaved) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor b, Tensor x, Tensor w) { return torch::addmm(b, x, w); });
    for (int i = 0; i < 20; ++i) {
      auto b = torch::randn({2}).requires_grad_();
      auto x = torch::randn({3, 4}).requires_grad_();
      auto w = torch::randn({4, 2}).requires_grad_();
      auto y = f(b, x, w);
      auto g = torch::randn({3, 2});
      const bool whole_first = i % 2 == 0;
      const auto backward = [&](bool whole) {
        if (whole) {
          torch::autograd::backward({y}, {g});
        } else {
          run.note("b", grad({y}, {b}, {g})[0]);
        }
      };
      backward(whole_first);
      if (i >= 12) {
        run.attempt("again", [&] { backward(!whole_first); });
        run.attempt("once more", [&] { backward(!whole_first); });
      }
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(
      report.total, traces == 3 && admissions == 1 && program_backwards == 16);
}

// Nothing is saved, so there is nothing to release.
TEST(CasesB, B4_SecondBackwardOfWhatSavesNothing) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return (x + 1).t(); });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = f(x);
      y.backward(torch::randn({4, 3}));
      run.attempt("again", [&] { y.backward(torch::randn({4, 3})); });
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_backwards == 10);
}

// A call without NoGradGuard whose backward never comes keeps nothing alive.
TEST(CasesB, Reruns_ArgumentsOfTracesWithoutBackwardAreLetGo) {
  auto f = temper::compile([](Tensor x) { return x.tanh() * 2; });
  auto w = torch::randn({3}).requires_grad_();
  for (int size = 1; size < 6; ++size) {
    for (int calls = 0; calls < 3; ++calls) {
      auto x = torch::randn({size, 3}) * w;
      const c10::weak_intrusive_ptr<c10::TensorImpl> argument(
          x.getIntrusivePtr());
      const c10::weak_intrusive_ptr<c10::StorageImpl> memory(
          c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
              x.storage().unsafeGetStorageImpl()));
      auto y = f(x);
      x.reset();
      EXPECT_TRUE(disabled() || !memory.expired()) << "y has no backward";
      y.reset();
      EXPECT_TRUE(argument.expired()) << "size " << size << ", call " << calls;
      EXPECT_TRUE(memory.expired()) << "size " << size << ", call " << calls;
    }
  }
  EXPECT_COUNTERS(
      temper::counters_of(f),
      traces == 5 && admissions == 5 && program_calls == 10);
}

} // namespace
} // namespace temper::testing
