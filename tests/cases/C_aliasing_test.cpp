// Cases C: arguments that overlap, are mutated, or are returned.
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

TEST(CasesC, C1_OverlappingSlices) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      x *= 2;
      return x + y;
    });
    // Apart, overlapping, the same, apart: any may be the first.
    for (int i = 0; i < 12; ++i) {
      auto data = torch::ones({8});
      auto x = data.slice(0, 0, 4);
      switch (i % 3) {
        case 0: {
          auto y = torch::ones({4});
          run.note("apart", f(x, y));
          run.note("y", y);
          break;
        }
        case 1: {
          auto result = f(x, data.slice(0, 2, 6));
          EXPECT_TRUE(
              torch::equal(result, torch::tensor({4.0, 4.0, 3.0, 3.0})));
          run.note("overlapping", result);
          break;
        }
        default:
          run.note("same", f(x, x));
      }
      run.note("data", data);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"aten::mul_.Scalar writes to memory that several inputs share "
               "('argument 0')",
               3}});
  EXPECT_COUNTERS(report.total, traces == 3);
  EXPECT_COUNTERS(report.total, program_calls == 6);
}

TEST(CasesC, C1_OverlapFirst) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      y.add_(x);
      x.mul_(y);
      return std::make_tuple(x, y);
    });
    for (int i = 0; i < 8; ++i) {
      auto data = torch::arange(8, torch::kFloat);
      auto other = torch::arange(4, torch::kFloat);
      const bool overlap = i < 4;
      // Eager refuses the first write where they overlap in part.
      auto y = overlap ? data.slice(0, 3, 7) : other;
      y = i == 1 ? data.slice(0, 0, 4) : y;
      run.attempt("call", [&] { run.note("all", f(data.slice(0, 0, 4), y)); });
      run.note("data", data);
      run.note("other", other);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 5 && program_calls == 3);
}

TEST(CasesC, C1_ArgumentOverlapsAParameter) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto f = run.compile_function(
        [&net](Tensor x) {
          auto y = net->forward(torch::ones({2, 4}));
          x.add_(1);
          return std::make_tuple(y, net->forward(torch::ones({2, 4})));
        },
        net);
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 6; ++i) {
      auto apart = torch::randn({4});
      run.note("all", f(i % 2 ? net->first->weight[1] : apart));
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"aten::add_.Scalar writes to memory that several inputs share "
               "('watched 0.first.weight')",
               2}});
  EXPECT_COUNTERS(report.total, traces == 2);
  EXPECT_COUNTERS(report.total, program_calls == 2);
}

TEST(CasesC, C2_CopyThenWriteTheSource) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor dst, Tensor src) {
      dst.copy_(src);
      src += 1;
      return dst.sum();
    });
    for (const auto dtype : {torch::kFloat, torch::kLong, torch::kFloat}) {
      for (int i = 0; i < 4; ++i) {
        auto dst = torch::zeros({3, 2}, dtype);
        auto src = torch::full({2}, 5, dtype);
        run.note("sum", f(dst, src));
        run.note("dst", dst);
        run.note("src", src);
      }
    }
  });
  // Two dtypes.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 10);
}

// The destination gets the source's history, or ends one of its own.
TEST(CasesC, C2_CopyWithAHistory) {
  for (const bool target : {false, true}) {
    const auto report = expect_same([target](Trial& run) {
      auto f = run.compile_function([](Tensor dst, Tensor src) {
        dst.copy_(src);
        return (dst * src).sum();
      });
      for (int i = 0; i < 6; ++i) {
        auto leaf = torch::randn({2}).requires_grad_();
        auto other = torch::randn({3, 2}).requires_grad_();
        auto dst = target ? other.sin() : torch::zeros({3, 2});
        auto sum = f(dst, leaf.exp());
        run.note("sum", sum);
        run.note("dst", dst);
        (sum + dst.pow(2).sum()).backward();
        run.note_grad("leaf", leaf);
        run.note_grad("other", other);
      }
    });
    if (target) {
      EXPECT_COUNTERS(
          report.total,
          eager == 0 && traces == 1 && program_calls == 5 &&
              program_backwards == 5);
    } else {
      EXPECT_COUNTERS(
          report.total,
          reasons ==
              Reasons{{"the call changes the metadata of an argument", 5}});
    }
  }
}

TEST(CasesC, C2_SwapThroughATemporary) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor a, Tensor b) {
      auto t = a.clone();
      a.copy_(b);
      b.copy_(t);
    });
    for (int i = 0; i < 5; ++i) {
      auto a = torch::randn({3}), b = torch::randn({3});
      f(a, b);
      run.note("a", a);
      run.note("b", b);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
}

TEST(CasesC, C3_ViewOfAMutatedInput) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor t0, Tensor ta) {
      t0 += 100;
      return ta[0];
    });
    for (int i = 0; i < 5; ++i) {
      auto t0 = torch::arange(6, torch::kFloat).view({3, 2});
      auto row = f(t0, t0.slice(0, 1));
      run.note("t0", t0);
      run.note("row", row);
      row.zero_();
      run.note("t0 after", t0);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"aten::add_.Scalar writes to memory that several inputs share "
               "('argument 0')",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesC, C3_ViewsOfOneInput) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor t) {
      auto row = t[1];
      t.mul_(3);
      row.add_(1);
      return std::make_tuple(row, t.t(), t.view({-1}).slice(0, 2), t);
    });
    for (int i = 0; i < 5; ++i) {
      auto t = torch::arange(6, torch::kFloat).view({3, 2});
      auto all = f(t);
      run.note("t", t);
      run.note("all", all);
      std::get<2>(all).fill_(7);
      run.note("t after", t);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
}

// Shallow copies, which no operator makes: eager, with the values and the
// memory that the user expects.
TEST(CasesC, C4_DataOfTensors) {
  for (const bool grad : {false, true}) {
    const auto of_input = expect_same([grad](Trial& run) {
      auto f = run.compile_function([](Tensor x) { return x.data(); });
      for (int i = 0; i < 5; ++i) {
        auto x = torch::randn({3}).requires_grad_(grad);
        auto y = f(x);
        run.note("x", x);
        run.note("y", y);
        y.add_(1);
        run.note("x after", x);
      }
    });
    EXPECT_COUNTERS(
        of_input.total,
        reasons == Reasons{{"a result is a shallow copy of an input", 4}} &&
            traces == 1);
    const auto of_result = expect_same([grad](Trial& run) {
      auto f = run.compile_function([](Tensor x) {
        auto y = x + 1;
        return std::make_tuple(y, y.data());
      });
      for (int i = 0; i < 5; ++i) {
        auto x = torch::randn({3}).requires_grad_(grad);
        auto [y, data] = f(x);
        run.note("y", y);
        run.note("data", data);
        data.mul_(2);
        run.note("y after", y);
        run.note("version", static_cast<int64_t>(y._version()));
        if (grad) {
          y.sum().backward();
          run.note_grad("x", x);
        }
      }
    });
    EXPECT_COUNTERS(
        of_result.total,
        reasons ==
                Reasons{
                    {"two results are one memory, which autograd does not know (.data())",
                     4}} &&
            traces == 1);
  }
}

// What `f` returns is its argument, or shares its memory.
template <class F>
void expect_aliases(const F& code) {
  const auto report = expect_same([&](Trial& run) {
    auto f = run.compile_function(code);
    for (int i = 0; i < 5; ++i) {
      auto x = torch::ones({2, 3});
      run.note("x", x);
      auto y = f(x);
      run.note("y", y);
      y.add_(1);
      run.note("x after", x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
}

TEST(CasesC, C4_DropoutInEval) {
  expect_aliases([](Tensor x) { return torch::dropout(x, 0.5, false); });
}

TEST(CasesC, C4_Contiguous) {
  expect_aliases([](Tensor x) { return x.contiguous(); });
}

TEST(CasesC, C4_ToTheSame) {
  expect_aliases([](Tensor x) { return x.to(torch::kFloat).to(x.device()); });
}

TEST(CasesC, C4_ExpandAs) {
  expect_aliases([](Tensor x) { return x.expand_as(torch::zeros({2, 3})); });
}

TEST(CasesC, C4_IdentityAndViews) {
  expect_aliases([](Tensor x) { return x; });
  expect_aliases([](Tensor x) { return x.view({3, 2}).t(); });
  expect_aliases([](Tensor x) { return x.reshape({6}); });
  expect_aliases([](Tensor x) { return x.detach(); });
  expect_aliases([](Tensor x) { return x.mul_(2); });
}

TEST(CasesC, C4_IdentityModule) {
  const auto report = expect_same([](Trial& run) {
    torch::nn::Sequential net(torch::nn::Identity(), torch::nn::Dropout(0.5));
    net->eval();
    auto f = run.compile_function(
        [net](Tensor x) mutable { return net->forward(x); }, net);
    for (int i = 0; i < 5; ++i) {
      auto x = torch::ones({2, 3}).requires_grad_(i % 2 == 0);
      run.note("x", x);
      run.note("y", f(x));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 3);
}

TEST(CasesC, C4_TwoOutputsAreOneTensor) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = x * 2;
      return std::vector<Tensor>{y, y, y.view({-1}), x, y.detach()};
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({2, 3}).requires_grad_(i % 2 == 1);
      run.note("x", x);
      run.note("all", f(x));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 4);
}

// The input has a history, and the result is written to afterwards.
template <class F>
void expect_written_aliases(const F& code) {
  const auto report = expect_same([&](Trial& run) {
    auto f = run.compile_function(code);
    for (int i = 0; i < 6; ++i) {
      auto leaf = torch::randn({2, 3}).requires_grad_();
      auto x = leaf.sin();
      run.note("x", x);
      auto y = f(x);
      run.note("y", y);
      run.attempt("write", [&] { y.mul_(torch::full_like(y, 3)); });
      run.note("x after", x);
      run.note("y after", y);
      run.attempt("backward", [&] { (x.exp().sum() + y.sum()).backward(); });
      run.note_grad("leaf", leaf);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 5);
}

TEST(CasesC, C4_WrittenResultsOfInputsWithHistory) {
  expect_written_aliases([](Tensor x) { return x; });
  expect_written_aliases(
      [](Tensor x) { return torch::dropout(x, 0.5, false); });
  expect_written_aliases([](Tensor x) { return x.contiguous(); });
  expect_written_aliases([](Tensor x) { return x.to(torch::kFloat); });
  expect_written_aliases([](Tensor x) {
    return x.expand_as(torch::zeros({2, 3}));
  });
  expect_written_aliases([](Tensor x) { return x.view({3, 2}).t(); });
  expect_written_aliases([](Tensor x) { return x.reshape({6}); });
  expect_written_aliases([](Tensor x) { return x.detach(); });
  expect_written_aliases([](Tensor x) { return (x * 2).view({6}); });
  expect_written_aliases([](Tensor x) { return x.mul_(2); });
}

TEST(CasesC, C5_ArgumentGetsACopyOfTheResult) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = x.sin() * 3;
      x.copy_(y);
      return y;
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({4});
      auto y = f(x);
      run.note("y", y);
      y.zero_();
      run.note("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
}

TEST(CasesC, C5_ArgumentWithAHistoryGetsACopyOfTheResult) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = x * 3;
      x.copy_(y.sin());
      return y;
    });
    for (int i = 0; i < 6; ++i) {
      auto leaf = torch::randn({4}).requires_grad_();
      auto x = leaf * 2;
      auto y = f(x);
      run.note("y", y);
      run.note("x", x);
      (y.pow(2).sum() + x.sum()).backward();
      run.note_grad("leaf", leaf);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesC, C6_ExpandedTensors) {
  const auto report = expect_same([](Trial& run) {
    auto one = run.compile_function([](Tensor x) {
      x.select(0, 1).select(0, 2).fill_(7);
      return x + 1;
    });
    auto all = run.compile_function([](Tensor x) { return x.add_(1); });
    for (int i = 0; i < 5; ++i) {
      auto base = torch::zeros({1, 4});
      auto x = base.expand({3, 4});
      run.note("one", one(x));
      run.note("base", base);
      run.attempt("all", [&] { all(x); });
      run.note("base", base);
      run.note("fresh", all(torch::zeros({3, 4})));
    }
  });
  EXPECT_COUNTERS(
      report.total, reasons == Reasons{{"the code threw in each trace", 2}});
  EXPECT_COUNTERS(report.total, traces == 5 && program_calls == 8);
}

TEST(CasesC, C6_ExpandedInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = (x * 2).expand({3, 4});
      y.select(0, 0).select(0, 1).add_(5);
      return y;
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::ones({1, 4})));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
}

// Its gradient is the sum over what was one element.
TEST(CasesC, C6_ExpandedArgumentWithGrad) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) {
      return std::make_tuple((x * w).sum(0), x.t());
    });
    for (int i = 0; i < 6; ++i) {
      auto leaf = torch::randn({1, 4}).requires_grad_();
      auto x = leaf.expand({3, 4});
      auto [y, view] = f(x, torch::randn({3, 4}));
      run.note("x", x);
      run.note("y", y);
      run.note("view", view);
      (y.pow(2).sum() + view.select(1, 1).sum()).backward();
      run.note_grad("leaf", leaf);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

// Written, it would give its base a history.
TEST(CasesC, C6_ExpandedArgumentWithGradIsWritten) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      x.select(0, 1).select(0, 2).fill_(7);
      return x + 1;
    });
    for (int i = 0; i < 5; ++i) {
      auto leaf = torch::randn({1, 4}).requires_grad_();
      auto base = leaf * 2;
      auto y = f(base.expand({3, 4}));
      run.note("y", y);
      run.note("base", base);
      (y.sum() + base.sum()).backward();
      run.note_grad("leaf", leaf);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"the call changes the history of an argument", 4}} &&
          traces == 1);
}

/// Mutates its input and buffers, and draws.
struct BusyImpl : temper::Module<BusyImpl> {
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  Tensor calls;

  BusyImpl() {
    reset();
  }
  void reset() override {
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
    calls = register_buffer("calls", torch::zeros({}, torch::kLong));
  }
  Tensor forward(Tensor x) {
    x.add_(1);
    calls += 1;
    auto y = dropout(norm(x * 1));
    x[0].mul_(2);
    return y;
  }
};
TEMPER_MODULE(Busy);

TEST(CasesC, C7_EffectsHappenOnce) {
  for (const bool grad : {true, false}) {
    const auto report = expect_same([&](Trial& run) {
      const torch::AutoGradMode mode(grad);
      Busy net;
      run.compile(net);
      for (int i = 0; i < 6; ++i) {
        auto x = torch::randn({5, 4});
        auto y = net(x);
        run.note("y", y);
        run.note("x", x);
        run.note_module("net", *net);
        run.note_generator();
        EXPECT_EQ(net->calls.item<int64_t>(), i + 1);
        if (grad) {
          y.sum().backward();
        }
        run.note_module("net", *net);
      }
    });
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 1 && program_calls == 5);
    EXPECT_COUNTERS(report.total, program_backwards == (grad ? 5 : 0));
  }
}

TEST(CasesC, C7_AMutatedArgumentThatNeedsGrad) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) {
      x.mul_(w);
      return x.sum();
    });
    for (int i = 0; i < 5; ++i) {
      auto w = torch::randn({3}).requires_grad_();
      auto x = torch::randn({3}).requires_grad_();
      auto inner = x * 1;
      auto plain = torch::ones({3});
      auto sum = f(inner, w);
      (sum + inner.pow(2).sum()).backward();
      f(plain, w);
      run.note("plain", plain);
      run.note_grad("w", w);
      run.note_grad("x", x);
      run.attempt("leaf", [&] { f(x, w); });
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"the call changes the metadata of an argument", 4},
              {"the code threw in each trace", 2}});
  EXPECT_COUNTERS(report.total, traces == 5);
  EXPECT_COUNTERS(report.total, program_calls == 4 && program_backwards == 4);
}

TEST(CasesC, C8_SliceThenFresh) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      return std::make_tuple(x.relu(), x.view({-1}), x.sum(0));
    });
    for (int i = 0; i < 8; ++i) {
      auto x = i % 2 == 0 ? torch::randn({10, 3}).slice(0, 2, 6)
                          : torch::randn({4, 3});
      run.note("x", x);
      run.note("all", f(x));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  // One is a view, the other is not.
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 6);
}

TEST(CasesC, C8_SliceThenFreshWithAHistory) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      return std::make_tuple(x.relu(), x.view({-1}), x.sum(0));
    });
    for (int i = 0; i < 8; ++i) {
      // Whole numbers: through a returned view sums have another order.
      auto leaf =
          torch::randint(-8, 8, {10, 3}, torch::kFloat).requires_grad_();
      auto x = i % 2 == 0 ? leaf.slice(0, 2, 6) : leaf.slice(0, 2, 6) * 2;
      auto [y, view, sum] = f(x);
      run.note("x", x);
      run.note("y", y);
      run.note("view", view);
      run.note("sum", sum);
      (y.sum() + view.pow(2).sum() + sum.pow(2).sum()).backward();
      run.note_grad("leaf", leaf);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2);
  EXPECT_COUNTERS(report.total, program_calls == 6 && program_backwards == 6);
}

TEST(CasesC, C8_AsStridedInside) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto windows = x.as_strided({3, 2}, {1, 1}, x.storage_offset());
      return std::make_tuple(windows * 2, windows);
    });
    for (int i = 0; i < 8; ++i) {
      auto data = torch::arange(10, torch::kFloat);
      auto x = i % 2 == 0 ? data.slice(0, i / 2, i / 2 + 4)
                          : torch::arange(4, torch::kFloat);
      run.note("x", x);
      run.note("all", f(x));
      // Beyond the slice, where only the storage says what is there.
      run.attempt("short", [&] { f(torch::ones({3})); });
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"aten::as_strided of an argument counts from the start of its "
               "storage, which guards don't see",
               6},
              {"the code threw in each trace", 5}});
  EXPECT_COUNTERS(report.total, traces == 5);
  EXPECT_COUNTERS(report.total, program_calls == 0);
}

} // namespace
} // namespace temper::testing
