// Case H3: calls that change the state that they are guarded by. They run
// eagerly, are looked at less and less often, and keep others from nothing.
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// Counts its calls, in training or always, up to some number.
struct CountingImpl : temper::Module<CountingImpl> {
  nn::Linear fc{nullptr};
  int64_t calls = 0;
  int64_t most = 1000000;
  bool always = true;

  CountingImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
  }
  Tensor forward(Tensor x) {
    if (calls < most && (always || is_training())) {
      ++calls;
    }
    return fc(x);
  }
};
TEMPER_MODULE(Counting);

template <class Net>
void call(Trial& run, Net& net, int times) {
  for (int i = 0; i < times; ++i) {
    auto y = net(torch::randn({2, 4}));
    run.note("y", y);
    y.sum().backward();
    run.note_module("net", *net);
  }
}

// All eager calls have one reason, which begins so.
void expect_one_reason(const Counters& counters, const std::string& reason) {
  EXPECT_COUNTERS(
      counters,
      reasons.size() == 1 && reasons.begin()->first.starts_with(reason));
}

TEST(CasesH, H3_ACounterOfCalls) {
  const auto report = expect_same([](Trial& run) {
    Counting net;
    run.compile(net);
    call(run, net, 300);
    run.note("calls", net->calls);
  });
  // Traced are calls 1, 2, 4, 7, 12, 21, 38, 71, 136 and 265.
  EXPECT_COUNTERS(report.total, traces == 10 && eager == 290);
  expect_one_reason(report.total, "the call changes watched state: ");
  EXPECT_EQ(report.total.explain.find("signature 1"), std::string::npos);
}

TEST(CasesH, H3_ACounterThatStaysInEvaluation) {
  const auto report = expect_same([](Trial& run) {
    Counting net;
    net->always = false;
    run.compile(net);
    call(run, net, 300);
    net->eval();
    run.steady();
    call(run, net, 5);
    run.warm_up();
    net->train();
    call(run, net, 50);
    net->eval();
    call(run, net, 5);
  });
  // The count is another one after more training.
  EXPECT_COUNTERS(report.steady, eager == 0 && traces == 1);
  EXPECT_COUNTERS(report.steady, program_calls == 4);
  EXPECT_COUNTERS(report.total, traces == 12 && program_calls == 8);
  EXPECT_COUNTERS(report.total, eager == 340 && program_backwards == 8);
  expect_one_reason(report.total, "the call changes watched state: ");
}

TEST(CasesH, H3_ACounterOfWarmUpCalls) {
  const auto report = expect_same([](Trial& run) {
    Counting net;
    net->most = 30;
    run.compile(net);
    call(run, net, 40);
    run.steady();
    call(run, net, 10);
  });
  EXPECT_COUNTERS(report.steady, eager == 0 && program_calls == 10);
  EXPECT_COUNTERS(report.total, traces == 7 && eager == 31);
  expect_one_reason(report.total, "the call changes watched state: ");
}

/// With a field that nobody declares.
struct HistoryImpl : temper::Module<HistoryImpl> {
  int64_t calls = 0;
  std::vector<double> scales{2.0};

  void reset() override {}
  Tensor forward(Tensor x) {
    ++calls;
    scales.push_back(static_cast<double>(calls));
    return x * scales.back();
  }
};
TEMPER_MODULE(History);

TEST(CasesH, H3_AFieldThatCannotBeWatchedBesideACounter) {
  const auto report = expect_same([](Trial& run) {
    History net;
    run.compile(net);
    for (int i = 0; i < 300; ++i) {
      run.note("y", net(torch::randn({2, 4})));
    }
  });
  EXPECT_COUNTERS(report.total, traces == 0 && eager == 300);
  EXPECT_COUNTERS(
      report.total, reasons.size() == 1 && because("TEMPER_FIELDS"));
  EXPECT_EQ(report.total.explain.find("signature 1"), std::string::npos);
}

/// Carries a state from call to call.
struct RecurrentImpl : temper::Module<RecurrentImpl> {
  nn::Linear fc{nullptr};
  Tensor hidden;
  std::vector<Tensor> history;
  std::array<double, 20> norms{};
  int64_t at = 0;

  RecurrentImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
    hidden = torch::zeros({2, 4});
  }
  Tensor forward(Tensor x) {
    auto y = torch::tanh(fc(x) + hidden);
    if (is_training()) {
      hidden = y.detach();
      history.push_back(hidden);
      norms[static_cast<size_t>(at++ % 20)] += 1;
    }
    return y;
  }
  TEMPER_FIELDS(history)
};
TEMPER_MODULE(Recurrent);

TEST(CasesH, H3_AStateThatIsCarried) {
  const auto report = expect_same([](Trial& run) {
    Recurrent net;
    run.compile(net);
    call(run, net, 300);
    run.note("hidden", net->hidden);
    net->eval();
    run.steady();
    call(run, net, 5);
  });
  // Each of the first 20 calls writes to another element.
  EXPECT_COUNTERS(report.total, traces == 13 && program_calls == 4);
  EXPECT_COUNTERS(report.total, eager == 288);
  EXPECT_COUNTERS(report.steady, eager == 0 && traces == 1);
  expect_one_reason(report.total, "the call changes watched state: ");
}

TEST(CasesH, H3_EachModeHasItsOwnWait) {
  const auto report = expect_same([](Trial& run) {
    Counting net;
    run.compile(net);
    for (int i = 0; i < 64; ++i) {
      run.note("train", net(torch::randn({2, 4})));
      const torch::NoGradGuard no_grad;
      run.note("test", net(torch::randn({3, 4})));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 114 && traces == 14);
  EXPECT_COUNTERS(
      report.total,
      reasons.size() == 2 && because("the call changes watched state: "));
}

TEST(CasesH, H3_UnderFullgraphTheThirdCallSaysSo) {
  if (disabled()) {
    return;
  }
  Counting net;
  net->compile(CompileOptions().fullgraph(true));
  const torch::NoGradGuard no_grad;
  net(torch::randn({2, 4})); // Traced,
  net(torch::randn({2, 4})); // and once more.
  for (int i = 0; i < 3; ++i) {
    try {
      net(torch::randn({2, 4}));
      ADD_FAILURE() << "no exception";
    } catch (const temper::Error& error) {
      EXPECT_NE(
          std::string(error.what()).find("the call changes watched state"),
          std::string::npos);
    }
  }
}

TEST(CasesH, H3_ArgumentsOfOtherKindsShareASignature) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor a, Tensor b) {
      return a.is_sparse()   ? at::_sparse_mm(a, b)
          : a.is_quantized() ? a.dequantize().mm(b)
                             : a.mm(b);
    });
    const auto sparse = torch::eye(3).to_sparse();
    const auto quantized =
        at::quantize_per_tensor(torch::eye(3), 0.1, 0, torch::kQInt8);
    for (int i = 0; i < 300; ++i) {
      run.note("y", f(i % 3 == 0 ? quantized : sparse, torch::randn({3, 3})));
    }
    run.steady();
    for (int i = 0; i < 4; ++i) {
      run.note("y", f(torch::eye(3), torch::randn({3, 3})));
    }
  });
  EXPECT_COUNTERS(report.steady, eager == 0 && program_calls == 3);
  EXPECT_COUNTERS(report.total, eager == 300 && traces == 1);
  expect_one_reason(report.total, "an argument is a sparse, nested");
}

} // namespace
} // namespace temper::testing
