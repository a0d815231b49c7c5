// Cases H1 to H3: what guards cannot see, or see only when told: raw memory,
// containers, state between calls.
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

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

// The first call of six tells, or the second, on tensors without data.
void expect_raw_access(const Report& report) {
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"the data of a tensor is read outside of tensor ops "
               "(data_ptr, an accessor, an Eigen map)",
               5}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H1_FilledThroughDataPtr) {
  const auto report = expect_values([](Tensor x) {
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* into = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      into[i] = from[i] * 2 + 1;
    }
    return y + 1;
  });
  expect_raw_access(report);
}

TEST(CasesH, H1_ResultOfAnOperatorRead) {
  const auto report = expect_values([](Tensor x) {
    auto y = torch::exp(x);
    const float first = y.const_data_ptr<float>()[0];
    return first > 1 ? y * 2 : y - 1;
  });
  expect_raw_access(report);
}

TEST(CasesH, H1_Accessors) {
  const auto report = expect_values([](Tensor x) {
    auto y = torch::zeros({3});
    auto from = x.accessor<float, 2>();
    auto into = y.accessor<float, 1>();
    for (int64_t i = 0; i < 3; ++i) {
      into[i] = from[i][0] + from[i][3];
    }
    return y.exp();
  });
  expect_raw_access(report);
}

TEST(CasesH, H1_ArgumentOnlyRead) {
  // All operators are the same whatever is read; only a value differs.
  const auto report = expect_values([](Tensor x) {
    const double factor = x.const_data_ptr<float>()[1];
    return x * factor;
  });
  expect_raw_access(report);
}

/// A view of a tensor's memory as a matrix, as Eigen::Map is one.
class MatrixMap {
 public:
  explicit MatrixMap(const Tensor& tensor)
      : data_(tensor.data_ptr<float>()),
        rows_(tensor.size(0)),
        columns_(tensor.size(1)) {}

  float& operator()(int64_t i, int64_t k) const {
    return data_[i * columns_ + k];
  }
  void assign_product(const MatrixMap& a, const MatrixMap& b) const {
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t k = 0; k < columns_; ++k) {
        float sum = 0;
        for (int64_t j = 0; j < a.columns_; ++j) {
          sum += a(i, j) * b(j, k);
        }
        (*this)(i, k) = sum;
      }
    }
  }

 private:
  float* data_;
  int64_t rows_, columns_;
};

TEST(CasesH, H1_MatrixMapOfAResult) {
  const auto report = expect_values([](Tensor x) {
    auto y = torch::empty({3, 3});
    MatrixMap(y).assign_product(MatrixMap(x), MatrixMap(x.t().contiguous()));
    return y.exp();
  });
  expect_raw_access(report);
}

TEST(CasesH, H1_MatrixMapWritesAnArgument) {
  const auto report = expect_values([](Tensor x) {
    const auto y = x * 2;
    const MatrixMap map(x);
    map(1, 1) = 5;
    return y + x;
  });
  expect_raw_access(report);
}

TEST(CasesH, H1_FromBlob) {
  const auto report = expect_same([](Trial& run) {
    static std::vector<float> buffer;
    buffer.assign(12, 1.0f);
    auto f = run.compile_function([](Tensor x) {
      return x + torch::from_blob(buffer.data(), {3, 4});
    });
    for (int i = 0; i < 8; ++i) {
      buffer[static_cast<size_t>(i)] = static_cast<float>(i);
      if (i == 5) {
        buffer = std::vector<float>(12, -1.0f);
      }
      run.note("y", f(torch::ones({3, 4})));
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 7 &&
          because("aten::add.Tensor uses a tensor of unknown origin, of sizes "
                  "[3, 4]: "));
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H1_FromBlobOfAnArgument) {
  // The view is made of memory that the shadow run does not have.
  const auto report = expect_values([](Tensor x) {
    auto row = torch::from_blob(x.data_ptr<float>(), {4});
    return x * row;
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 5 &&
          because("aten::mul.Tensor uses a tensor of unknown origin, of sizes "
                  "[4]: "));
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

/// Remembers all it was given.
struct GrowingImpl : temper::Module<GrowingImpl> {
  std::vector<Tensor> seen;
  std::map<std::string, Tensor> named;

  GrowingImpl() {
    reset();
  }
  void reset() override {}
  Tensor forward(Tensor x) {
    seen.push_back(x * 1);
    named[std::to_string(seen.size() % 4)] = x + 1;
    auto y = torch::stack(seen).sum(0);
    for (const auto& [name, t] : named) {
      y = y + t;
    }
    return y;
  }
};
TEMPER_MODULE(Growing);

TEST(CasesH, H2_ContainersThatGrow) {
  const auto report = expect_same([](Trial& run) {
    Growing net;
    run.compile(net);
    for (int i = 0; i < 10; ++i) {
      run.note("y", net(torch::randn({3})));
      run.note("seen", net->seen);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 9 && because("of 'GrowingImpl'"));
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

struct HeapSettings {
  double gain = 1;
  std::vector<double> weights = {1, 2};
};

/// Uses the contents of heap memory; a derived class may declare them.
template <class Impl>
struct HeapFieldsImpl : temper::Module<Impl> {
  std::vector<double> scales = {1, 2, 3};
  std::string mode = "a name too long to be stored within the string itself";
  std::shared_ptr<HeapSettings> settings = std::make_shared<HeapSettings>();

  void reset() override {}
  Tensor forward(Tensor x) {
    for (const double s : scales) {
      x = x * s;
    }
    if (mode.find("sin") != std::string::npos) {
      x = x.sin();
    }
    return x * settings->gain + settings->weights.back();
  }
};

struct UndeclaredImpl : HeapFieldsImpl<UndeclaredImpl> {};
TEMPER_MODULE(Undeclared);

struct DeclaredImpl : HeapFieldsImpl<DeclaredImpl> {
  TEMPER_FIELDS(scales, mode, settings)
};
TEMPER_MODULE(Declared);

template <class Net>
Report expect_sees_heap() {
  return expect_same([](Trial& run) {
    Net net;
    run.compile(net);
    auto x = torch::ones({3}).requires_grad_();
    const auto call = [&] {
      for (int i = 0; i < 3; ++i) {
        auto y = net(x);
        run.note("y", y);
        y.sum().backward();
        run.note_grad("x", x);
      }
    };
    call();
    net->scales[1] = 5;
    call();
    net->scales.push_back(0.5);
    call();
    net->mode += " with sin";
    call();
    net->settings->gain = 3;
    call();
    net->settings->weights.back() = 4;
    call();
    net->settings = std::make_shared<HeapSettings>();
    call();
  });
}

TEST(CasesH, H2_ContentsNotDeclared) {
  const auto report = expect_sees_heap<Undeclared>();
  EXPECT_COUNTERS(report.total, eager == 21 && because("of 'UndeclaredImpl'"));
  EXPECT_COUNTERS(report.total, traces == 0 && program_calls == 0);
}

TEST(CasesH, H2_ContentsDeclared) {
  const auto report = expect_sees_heap<Declared>();
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 6 && program_calls == 15);
  EXPECT_COUNTERS(report.total, program_backwards == 15);
}

// What no guard can see, but a shadow run does: a result of unknown origin
// where the trace had none.
TEST(CasesH, H1_ResultThatNoOperatorMade) {
  static Tensor given;
  const auto report = expect_same([](Trial& run) {
    given = Tensor();
    auto f = run.compile_function(
        [](Tensor x) { return std::make_tuple(x + 1, given); });
    const auto x = torch::randn({3});
    run.note("none", f(x));
    given = torch::ones({2});
    run.note("one", f(x));
    run.note("still one", f(x));
  });
  given = Tensor();
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"differs from call to call: a result is another tensor", 1}});
  EXPECT_COUNTERS(report.total, shadow_runs == 1 && admissions == 0);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

// What a shadow run that diverged has made is an argument like any other.
TEST(CasesH, H1_ResultOfACallThatDiverged) {
  static bool other;
  const auto report = expect_same([](Trial& run) {
    other = false;
    auto f = run.compile_function([](Tensor x) {
      auto y = x + 1; // A shadow when the next operator is found to differ.
      return std::make_tuple(y, other ? y * 2 : y * 3);
    });
    auto g = run.compile_function([](Tensor y) { return y.exp(); });
    const auto x = torch::randn({3});
    for (int i = 0; i < 2; ++i) {
      const auto [y, z] = f(x);
      other = true;
      run.note("y", y);
      run.note("z", z);
      for (int k = 0; k < 3; ++k) {
        run.note("exp", g(y));
      }
      // As a capture, also as a shallow copy.
      for (const auto& held : {y, y.detach()}) {
        auto h = run.compile_function([held](Tensor t) { return t + held; });
        for (int k = 0; k < 3; ++k) {
          run.note("sum", h(x));
        }
      }
      y.resize_({100}).zero_();
      run.note("larger", y);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"differs from call to call: aten::mul.Scalar: a number differs "
               "(argument 'other')",
               1}});
  EXPECT_COUNTERS(report.total, traces == 6 && program_calls == 13);
}

/// State between calls: a hidden tensor, a position, a mask made once.
struct EpisodicImpl : temper::Module<EpisodicImpl> {
  nn::Linear fc{nullptr};
  Tensor h, mask;
  int64_t pos = 0;

  EpisodicImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
  }
  Tensor forward(Tensor x) {
    if (!mask.defined()) {
      mask = torch::arange(4, torch::kFloat);
    }
    pos += x.size(0);
    h = torch::tanh(fc(x) + (h.defined() ? h : torch::zeros_like(x)));
    return h * mask + static_cast<double>(pos);
  }
};
TEMPER_MODULE(Episodic);

TEST(CasesH, H3_HiddenState) {
  const auto report = expect_same([](Trial& run) {
    Episodic net;
    run.compile(net);
    for (int episode = 0; episode < 4; ++episode) {
      Tensor loss = torch::zeros({});
      for (int t = 0; t < 3; ++t) {
        auto y = net(torch::randn({2, 4}));
        run.note("y", y);
        run.note("h", net->h);
        run.note("pos", net->pos);
        loss = loss + y.pow(2).mean();
      }
      loss.backward();
      run.note_module("net", *net);
      // Both ways to begin anew.
      net->h = episode % 2 == 0 ? net->h.detach() : Tensor();
      net->pos = 0;
    }
  });
  EXPECT_COUNTERS(report.total, eager == 7 && traces == 5 && graphs == 0);
  EXPECT_COUNTERS(
      report.total,
      because(
          "the call changes watched state: 'EpisodicImpl': field at bytes "));
  EXPECT_COUNTERS(report.total, program_calls == 0);
}

} // namespace
} // namespace temper::testing
