// A reason to run eagerly names the operator and the place in the module: in
// the counters, in explain and in fullgraph's error.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using testing::HasSubstr;
using torch::Tensor;
namespace nn = torch::nn;

using Reasons = std::map<std::string, int64_t>;

/// Looks at what it has computed.
struct GateImpl : temper::Module<GateImpl> {
  Tensor weight;
  Tensor (*look)(const Tensor&) = nullptr;

  GateImpl() {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::ones({4}));
  }
  Tensor forward(const Tensor& x) {
    return look(x * weight);
  }
};
TEMPER_MODULE(Gate);

struct EncoderImpl : temper::Module<EncoderImpl> {
  Gate gate{nullptr};

  EncoderImpl() {
    reset();
  }
  void reset() override {
    gate = register_module("gate", Gate());
  }
  Tensor forward(const Tensor& x) {
    return gate(x);
  }
};
TEMPER_MODULE(Encoder);

struct NetImpl : temper::Module<NetImpl> {
  Encoder encoder{nullptr};
  nn::Linear head{nullptr};

  NetImpl() {
    reset();
  }
  void reset() override {
    encoder = register_module("encoder", Encoder());
    head = register_module("head", nn::Linear(4, 2));
  }
  Tensor forward(const Tensor& x) {
    return head(encoder(x));
  }
};
TEMPER_MODULE(Net);

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const temper::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

// `net`, of this name, runs eagerly for `reason` and says so everywhere.
template <class Model>
void expect_reason(
    Model& net,
    const Tensor& x,
    const std::string& name,
    const std::string& reason) {
  net->compile();
  const auto expected = net->forward(x);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(net(x).equal(expected));
  }
  const auto counters = temper::counters_of(net);
  EXPECT_EQ(counters.traces, 1);
  EXPECT_EQ(counters.eager_calls, (Reasons{{reason, 3}}));
  EXPECT_THAT(temper::explain(net), HasSubstr("\n  3 eager: " + reason + "\n"));
  EXPECT_THAT(
      temper::explain(net),
      HasSubstr("\n  signature 0: eager: " + reason + "\n"));
  net->compile(CompileOptions().fullgraph(true));
  EXPECT_TRUE(net(x).equal(expected)); // It finds out.
  EXPECT_EQ(
      error_of([&] { net(x); }),
      "temper: cannot compile '" + name + "': " + reason +
          ". To let it run eagerly use CompileOptions().fullgraph(false).");
}

void expect_gate_reason(Tensor (*look)(const Tensor&), const char* reason) {
  const torch::NoGradGuard no_grad;
  Net net;
  net->encoder->gate->look = look;
  expect_reason(
      net,
      torch::rand({3, 4}) + 0.5,
      "Net",
      std::string("data dependence: ") + reason +
          " (after 'encoder.gate.weight')");
}

TEST(ReasonsTest, OperatorsThatReadDataAreNamedWithTheirModule) {
  expect_gate_reason(
      [](const Tensor& x) { return x * x.sum().item<double>(); },
      "aten::_local_scalar_dense");
  expect_gate_reason(
      [](const Tensor& x) { return x + x.nonzero().size(0); }, "aten::nonzero");
  expect_gate_reason(
      [](const Tensor& x) { return torch::equal(x, x + 1) ? x : x * 2; },
      "aten::equal of different tensors decides what runs");
  expect_gate_reason(
      [](const Tensor& x) { return x + x.index({x > 1}).sum(); },
      "aten::index.Tensor");
  expect_gate_reason(
      [](const Tensor& x) { return x + x.masked_select(x > 1).sum(); },
      "aten::masked_select");
}

/// Reads data between two layers.
struct BetweenImpl : temper::Module<BetweenImpl> {
  nn::Linear first{nullptr}, second{nullptr};
  int64_t at = 0;

  BetweenImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", nn::Linear(4, 4));
    second = register_module("second", nn::Linear(4, 4));
  }
  Tensor forward(Tensor x) {
    const auto look = [&](int64_t here) {
      if (at == here) {
        x = x * x.sum().item<double>();
      }
    };
    look(0);
    x = first(x);
    look(1);
    x = second(x);
    look(2);
    return x;
  }
};
TEMPER_MODULE(Between);

TEST(ReasonsTest, ThePlaceIsTheParameterUsedLast) {
  const torch::NoGradGuard no_grad;
  const std::string reason = "data dependence: aten::_local_scalar_dense";
  const char* const places[] = {
      "", " (after 'first.bias')", " (after 'second.bias')"};
  for (int64_t at = 0; at < 3; ++at) {
    Between net;
    net->at = at;
    // Before any parameter there is no place to name.
    expect_reason(net, torch::rand({2, 4}), "Between", reason + places[at]);
  }
}

struct BareImpl : temper::Module<BareImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x * x.sum().item<double>();
  }
};
TEMPER_MODULE(Bare);

TEST(ReasonsTest, AModuleWithoutParametersHasNoPlaceToName) {
  Bare net;
  expect_reason(
      net,
      torch::ones({3}),
      "Bare",
      "data dependence: aten::_local_scalar_dense");
}

TEST(ReasonsTest, AFunctionNamesThePathInItsState) {
  const torch::NoGradGuard no_grad;
  Encoder encoder;
  encoder->gate->look = [](const Tensor& x) { return x + x.nonzero().size(0); };
  auto f = temper::compile(
      [&encoder](const Tensor& x) { return encoder->forward(x); }, encoder);
  for (int i = 0; i < 3; ++i) {
    f(torch::ones({4}));
  }
  EXPECT_EQ(
      f.counters().eager_calls,
      (Reasons{
          {"data dependence: aten::nonzero (after 'watched 0.gate.weight')",
           2}}));
}

std::vector<Tensor> kept;

TEST(ReasonsTest, ATensorThatEscapesIsNamedByItsOperator) {
  auto f = temper::compile([](const Tensor& x) {
    kept.push_back(x.exp());
    return kept.back() + 1;
  });
  for (int i = 0; i < 3; ++i) {
    f(torch::ones({2}));
  }
  EXPECT_EQ(
      f.counters().eager_calls,
      (Reasons{
          {"a tensor made by aten::exp is kept after the call without being a "
           "result",
           2}}));
  kept.clear();
}

TEST(ReasonsTest, AnArgumentThatIsKeptIsNamed) {
  // The trace has no reason to look for it: the caller holds it, too.
  auto f = temper::compile([](const Tensor& x) {
    kept.push_back(x);
    return x + 1;
  });
  for (int i = 0; i < 4; ++i) {
    f(torch::ones({2}));
  }
  EXPECT_EQ(
      f.counters().eager_calls,
      (Reasons{{"'argument 0' is kept after the call", 2}}));
  EXPECT_EQ(f.counters().shadow_runs, 1);
  EXPECT_EQ(f.counters().admissions, 0);
  EXPECT_EQ(f.counters().program_calls, 1); // The values were right.
  for (const auto& tensor : kept) {
    EXPECT_TRUE(tensor.equal(torch::ones({2})));
  }
  kept.clear();
}

} // namespace
