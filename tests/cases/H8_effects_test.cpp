// Cases H8 to H11: writes behind the dispatcher, backward and steps inside,
// questions about tensors, exceptions.
#include <gtest/gtest.h>

#include <cstring>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

// Writes that no version counter shows; programs read live weights, of frozen
// ones, too, where the backend makes nothing of them. `new_states`: how often
// guards see another state because of them.
void expect_live(
    const std::function<void(Trial&, TwoLayers&)>& write,
    int64_t new_states = 0) {
  for (const bool frozen : {false, true}) {
    const auto report = expect_same([&](Trial& run) {
      TwoLayers net;
      run.compile(net, CompileOptions().freeze_weights(frozen));
      auto x = torch::randn({2, 4});
      for (int i = 0; i < 9; ++i) {
        net->zero_grad();
        auto y = net(x);
        run.note("y", y);
        y.pow(2).sum().backward();
        run.note_module("net", *net);
        {
          const torch::NoGradGuard no_grad;
          run.note("no grad", net(x));
        }
        if (i % 2 == 1) {
          write(run, net);
        }
      }
    });
    EXPECT_COUNTERS(report.total, calls == 18 && eager == 0);
    EXPECT_COUNTERS(report.total, traces == 2 + 2 * new_states);
    EXPECT_COUNTERS(report.total, program_calls == 16 - 2 * new_states);
    EXPECT_COUNTERS(report.total, program_backwards == 8 - new_states);
  }
}

TEST(CasesH, H8_DataCopy) {
  expect_live([](Trial&, TwoLayers& net) {
    net->first->weight.data().copy_(torch::randn({5, 4}));
    net->second->bias.data().mul_(-1);
  });
}

TEST(CasesH, H8_Memcpy) {
  expect_live([](Trial&, TwoLayers& net) {
    auto from = torch::randn({5, 4});
    std::memcpy(
        net->first->weight.data_ptr(), from.const_data_ptr(), from.nbytes());
  });
}

TEST(CasesH, H8_SetData) {
  expect_live([](Trial&, TwoLayers& net) {
    net->first->weight.set_data(torch::randn({5, 4}));
    net->second->weight.set_data(net->second->weight.data().clone() * 2);
  });
}

TEST(CasesH, H8_NewTensorAtAFreedAddress) {
  expect_live(
      [](Trial&, TwoLayers& net) {
        const auto sizes = net->first->bias.sizes().vec();
        net->first->bias.reset();
        net->first->bias = torch::randn(sizes).requires_grad_();
      },
      /*new_states=*/4);
}

TEST(CasesH, H8_ArgumentsAtFreedAddresses) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) { return x * 2 + x; });
    for (int i = 0; i < 30; ++i) {
      // Freed at once, so that the next one lies in the same place.
      run.note("y", f(torch::full({i % 3 == 0 ? 3 : 4}, i)));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 1);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 28);
}

TEST(CasesH, H9_BiasChangedBeforeBackward) {
  // A linear layer does not save its bias, so eager allows this.
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3, 4}).requires_grad_();
      auto y = net(x);
      {
        const torch::NoGradGuard no_grad;
        net->first->bias.add_(1);
        net->second->bias.zero_();
      }
      EXPECT_TRUE(run.attempt("backward", [&] { y.pow(2).sum().backward(); }));
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesH, H10_Equal) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      const bool same = torch::equal(x, x);
      const bool equal = torch::equal(x, y);
      return same && equal ? x + 1 : x - y;
    });
    auto x = torch::randn({3});
    auto twin = x.clone();
    auto other = torch::randn({3});
    for (int i = 0; i < 9; ++i) {
      run.note("y", f(x, i % 3 == 0 ? x : i % 3 == 1 ? twin : other));
    }
    auto nan = torch::full({3}, std::nan(""));
    run.note("nan", f(nan, nan));
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"data dependence: aten::equal of different tensors decides "
               "what runs",
               5}});
  // Of one tensor with itself it is none.
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 3);
}

// README, Limits: what `equal` of a tensor with itself said is not asked again.
TEST(CasesH, H10_EqualToItselfButNotANumber) {
  const auto code = [](const Tensor& x) {
    return torch::equal(x, x) ? x.cos() : torch::zeros_like(x);
  };
  auto f = temper::compile(code);
  for (int i = 0; i < 4; ++i) {
    auto x = torch::randn({3});
    EXPECT_TRUE(f(x).equal(code(x)));
  }
  const auto nan = torch::full({3}, std::nan(""));
  EXPECT_TRUE(code(nan).equal(torch::zeros({3})));
  EXPECT_EQ(f(nan).isnan().all().item<bool>(), !disabled());
  EXPECT_COUNTERS(
      f.counters(), eager == 0 && traces == 1 && program_calls == 4);
}

TEST(CasesH, H10_MultiheadAttention) {
  const auto report = expect_same([](Trial& run) {
    nn::MultiheadAttention attention(
        nn::MultiheadAttentionOptions(8, 2).dropout(0.1));
    auto f = run.compile_function(
        [attention](Tensor q, Tensor k, Tensor v) mutable {
          return attention->forward(q, k, v);
        },
        attention);
    auto q = torch::randn({4, 2, 8}).requires_grad_();
    auto k = torch::randn({4, 2, 8});
    for (int i = 0; i < 10; ++i) {
      // Self-attention is found by comparing values.
      auto all = i % 2 == 0 ? f(q, q, q) : f(q, k, k * 2);
      run.note("all", all);
      std::get<0>(all).sum().backward();
      run.note_grad("q", q);
      run.note_module("attention", *attention);
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"data dependence: aten::equal of different tensors decides "
               "what runs",
               4}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

// Other sizes answer, whatever the values.
TEST(CasesH, H10_AttentionToALongerSequence) {
  const auto report = expect_same([](Trial& run) {
    nn::MultiheadAttention attention(nn::MultiheadAttentionOptions(8, 2));
    auto f = run.compile_function(
        [attention](Tensor q, Tensor memory) mutable {
          return attention->forward(q, memory, memory);
        },
        attention);
    for (int i = 0; i < 6; ++i) {
      auto q = torch::randn({4, 2, 8}).requires_grad_();
      auto all = f(q, torch::randn({5, 2, 8}));
      run.note("all", all);
      std::get<0>(all).sum().backward();
      run.note_grad("q", q);
    }
    auto other_dtype = run.compile_function(
        [](Tensor x, Tensor y) { return torch::equal(x, y) ? x : x * 2; });
    for (int i = 0; i < 4; ++i) {
      run.attempt("dtypes", [&] {
        run.note(
            "y",
            other_dtype(torch::ones({2}), torch::ones({3}).to(torch::kLong)));
      });
    }
  });
  EXPECT_COUNTERS(report.total, program_calls == 5 && program_backwards == 5);
}

TEST(CasesH, H11_TryCatchInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      Tensor z = x * 2;
      try {
        z = z.matmul(y);
      } catch (const c10::Error&) {
        z = z + 1;
      }
      return z.exp();
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({2, 3}).requires_grad_();
      auto z = f(x, torch::randn({i % 2 == 0 ? 4 : 3, 2}));
      run.note("z", z);
      z.sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"aten::mm threw, and the call went on", 3}});
  EXPECT_COUNTERS(report.total, traces == 2);
  EXPECT_COUNTERS(report.total, program_calls == 3 && program_backwards == 3);
}

/// Throws midway while told to.
struct FragileImpl : temper::Module<FragileImpl> {
  nn::Linear fc{nullptr};
  Tensor calls;
  bool fails = false;

  FragileImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 3));
    calls = register_buffer("calls", torch::zeros({}));
  }
  Tensor forward(Tensor x) {
    calls += 1;
    auto y = fc(x);
    if (fails) {
      throw std::out_of_range("as told");
    }
    calls += 1;
    return y.tanh();
  }
};
TEMPER_MODULE(Fragile);

TEST(CasesH, H11_ThrowsMidway) {
  const auto report = expect_same([](Trial& run) {
    Fragile net;
    run.compile(net);
    auto x = torch::randn({2, 4});
    // The first call throws; then good and bad ones in turn.
    for (int i = 0; i < 12; ++i) {
      net->fails = i % 4 == 0;
      run.attempt("call", [&] {
        auto y = net(x);
        run.note("y", y);
        y.sum().backward();
      });
      run.note_module("net", *net);
    }
  });
  // The bad calls are another signature, which is traced each time it throws.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 4 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 8);
}

TEST(CasesH, H11_OperatorThrowsOnBadSizes) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      x.add_(1); // Has happened when the next line throws.
      return x + y;
    });
    for (int i = 0; i < 10; ++i) {
      auto x = torch::zeros({3});
      auto y = torch::ones({i % 3 == 2 ? 2 : 3});
      run.attempt("call", [&] { run.note("z", f(x, y)); });
      run.note("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 4 && program_calls == 6);
}

TEST(CasesH, H11_IndexOutOfRange) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor table, Tensor index) {
      return torch::embedding(table, index) * 2;
    });
    auto table = torch::randn({5, 2}).requires_grad_();
    for (int i = 0; i < 10; ++i) {
      auto index = torch::tensor({0, i % 4 == 3 ? 5 : 4});
      run.attempt("call", [&] {
        auto y = f(table, index);
        run.note("y", y);
        y.sum().backward();
      });
      run.note_grad("table", table);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"an operator of its program threw", 2}});
  EXPECT_COUNTERS(report.total, traces == 1);
  EXPECT_COUNTERS(report.total, program_calls == 7 && program_backwards == 7);
}

TEST(CasesH, H11_HookThrowsInBackward) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    bool fails = false;
    net->first->weight.register_hook([&](const Tensor&) {
      TORCH_CHECK(!fails, "the hook was told to fail");
    });
    for (int i = 0; i < 9; ++i) {
      net->zero_grad();
      fails = i % 3 == 1;
      auto x = torch::randn({2, 4}).requires_grad_();
      auto y = net(x);
      run.note("y", y);
      run.attempt("backward", [&] { y.sum().backward(); });
      if (!fails) {
        run.note_grad("x", x);
        run.note_module("net", *net);
      }
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 8);
}

} // namespace
} // namespace temper::testing
