// Calls of compiled modules and functions give what eager calls give: values,
// changed arguments, exceptions.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "support/counters.h"
#include "temper/temper.h"

namespace {

using temper::testing::Reasons;
using torch::Tensor;

// Enough to be traced, shadowed and admitted.
constexpr int kCalls = 6;

struct Batch {
  Tensor x;
  std::optional<Tensor> mask;
  double scale = 1.0;
};

struct NetImpl : temper::Module<NetImpl> {
  torch::nn::Linear fc{nullptr};
  double gain = 1.0;

  NetImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(4, 4));
  }
  Tensor forward(Tensor x) {
    return torch::relu(fc(x)) * gain;
  }
  Tensor training_step(const Tensor& x, const Tensor& y) {
    return torch::mse_loss((*this)(x), y);
  }
};
TEMPER_MODULE(Net);

TEST(CallTest, HolderAndModuleAndRawForwardAgree) {
  torch::manual_seed(0);
  Net net;
  const auto x = torch::randn({2, 4});
  const auto expected = net->forward(x);
  EXPECT_TRUE(net(x).equal(expected));
  net->compile();
  EXPECT_TRUE(net->is_compiled());
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(net(x).equal(expected));
    EXPECT_TRUE((*net)(x).equal(expected));
    EXPECT_TRUE(net->forward(x).equal(expected));
    EXPECT_TRUE(net->training_step(x, expected).equal(torch::zeros({})));
  }
  // All but `forward` are calls, of one site.
  EXPECT_COUNTERS(
      temper::counters_of(net),
      calls == 6 && eager == 0 && program_calls == 5 && admissions == 1);
}

TEST(CallTest, ProgramsServeModulesAndFunctions) {
  torch::NoGradGuard no_grad;
  Net net;
  net->compile();
  double scale = 2.0;
  auto f = temper::compile(
      [&](const Tensor& a, const Batch& b) {
        return std::make_pair(net->forward(a) * b.x * scale, b.scale);
      },
      net,
      scale);
  Tensor x = torch::randn({2, 4});
  auto assign = temper::compile([](Tensor& t) { t = t * 2; });
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(net->forward(x)));
    const auto [y, n] = f(x, Batch{x, std::nullopt, 3.0});
    EXPECT_TRUE(torch::allclose(y, net->forward(x) * x * 2.0));
    EXPECT_EQ(n, 3.0);
    Tensor t = x;
    assign(t);
    EXPECT_TRUE(t.equal(x * 2));
    EXPECT_FALSE(t.is_same(x));
  }
  for (const auto& counters :
       {temper::counters_of(net), f.counters(), assign.counters()}) {
    EXPECT_COUNTERS(
        counters,
        calls == 6 && eager == 0 && program_calls == 5 && admissions == 1);
  }
}

TEST(CallTest, GradientsThroughStructs) {
  Net net;
  auto f = temper::compile(
      [net](const Batch& b) mutable {
        return std::vector<Tensor>{net->forward(b.x), b.x * b.scale};
      },
      net);
  for (int i = 0; i < kCalls; ++i) {
    auto x = torch::randn({2, 4}, torch::requires_grad());
    const auto ys = f(Batch{x, std::nullopt, 3.0});
    (ys[0].sum() + ys[1].sum()).backward();
    const auto got = x.grad().clone();
    x.mutable_grad().reset();
    (net->forward(x).sum() + (x * 3).sum()).backward();
    EXPECT_TRUE(torch::allclose(got, x.grad()));
  }
  EXPECT_COUNTERS(
      f.counters(),
      eager == 0 && program_calls == 5 && admissions == 1 &&
          program_backwards == 5);
}

// A backward that comes only after calls were served without one has to run the
// code again.
template <class F>
temper::Counters expect_late_backward(F&& f, const Tensor& factor) {
  const auto x = torch::randn({2, 4});
  for (int i = 0; i < kCalls; ++i) {
    f(x.clone().requires_grad_());
  }
  auto leaf = x.clone().requires_grad_();
  f(leaf).sum().backward();
  EXPECT_TRUE(torch::allclose(leaf.grad(), factor.expand({2, 4})));
  return temper::counters_of(f);
}

TEST(CallTest, LateBackwards) {
  const auto two = torch::full({1}, 2.0);
  NetImpl unowned;
  unowned.compile();
  {
    torch::NoGradGuard no_grad;
    unowned.fc->weight.copy_(torch::eye(4));
    unowned.fc->bias.fill_(100.0);
  }
  unowned.gain = 2.0;
  const auto plain = temper::compile([](const Tensor& x) { return x * 2; });
  const auto capturing =
      temper::compile([two](const Tensor& x) { return x * two; });
  for (const auto& counters :
       {expect_late_backward(plain, two),
        expect_late_backward(capturing, two),
        expect_late_backward(unowned, two)}) {
    EXPECT_COUNTERS(
        counters,
        reasons == Reasons{{"a backward of a kind not seen before", 1}});
    EXPECT_COUNTERS(
        counters, calls == 7 && program_calls == 6 && admissions == 1);
  }
  const auto opaque = expect_late_backward(
      temper::compile([n = std::make_unique<double>(2.0)](const Tensor& x) {
        return x * *n;
      }),
      two);
  EXPECT_COUNTERS(
      opaque,
      eager == 7 && traces == 0 &&
          because("bytes 0..7 of 'the function's captures' point to memory "
                  "whose content can't be watched"));
}

// As above, when the compiled object is gone by then. True iff it worked.
template <class Make>
bool late_backward_when_gone(const Make& make) {
  auto x = torch::ones({2, 4}, torch::requires_grad());
  Tensor y;
  {
    auto f = make();
    for (int i = 0; i < kCalls; ++i) {
      y = f(x);
    }
    // The traced call's result is there until the second has returned.
    EXPECT_COUNTERS(
        temper::counters_of(f),
        reasons == Reasons{{"waiting for the backward of a traced call", 1}} &&
            program_calls == 4 && admissions == 1);
  }
  try {
    y.sum().backward();
  } catch (const temper::Error&) {
    return false;
  }
  EXPECT_TRUE(torch::allclose(x.grad(), torch::full({2, 4}, 2.0)));
  return true;
}

TEST(CallTest, LateBackwardsOfWhatIsGone) {
  const auto twice = [](const Tensor& x) { return x * 2; };
  EXPECT_TRUE(late_backward_when_gone([&] { return temper::compile(twice); }));
  EXPECT_TRUE(late_backward_when_gone([] {
    torch::nn::Sequential sequential(
        torch::nn::Functional([](const Tensor& x) { return x * 2; }));
    return temper::compile(sequential);
  }));
  EXPECT_TRUE(late_backward_when_gone([] {
    Net net;
    torch::NoGradGuard no_grad;
    net->fc->weight.copy_(torch::eye(4));
    net->fc->bias.zero_();
    net->gain = 2.0;
    net->compile();
    return net;
  }));
  // What a closure captured may be gone, too: right or an error, never a crash.
  late_backward_when_gone([] {
    return temper::compile(
        [w = torch::full({1}, 2.0)](const Tensor& x) { return x * w; });
  });
}

TEST(CallTest, ArgumentMovedIntoTheCallIsGone) {
  Net net;
  net->compile();
  auto x = torch::randn({2, 4});
  net(std::move(x));
  EXPECT_FALSE(x.defined()); // NOLINT(bugprone-use-after-move)
}

struct ManyImpl : temper::Module<ManyImpl> {
  ManyImpl() = default;
  void reset() override {}
  // Overloads.
  Tensor forward(const Tensor& x) {
    return x + 1;
  }
  Tensor forward(const Tensor& x, int64_t n) {
    return x + n;
  }
  Tensor forward(const Tensor& x, double n) {
    return x * n;
  }
  std::tuple<Tensor, int64_t, std::string> forward(const Batch& batch) {
    auto y = batch.x * batch.scale;
    if (batch.mask) {
      y = y * *batch.mask;
    }
    return {y, batch.x.size(0), batch.mask ? "masked" : "whole"};
  }
  std::map<std::string, std::vector<Tensor>> forward(
      const std::vector<Tensor>& xs) {
    std::map<std::string, std::vector<Tensor>> out;
    for (const auto& x : xs) {
      out["twice"].push_back(x * 2);
      out["same"].push_back(x);
    }
    return out;
  }
  // By reference: leaves another tensor, or the same one changed.
  void forward(Tensor& x, const std::string& what) {
    if (what == "assign") {
      x = x * 3;
    } else if (what == "write") {
      x.mul_(5);
    } else if (what == "throw") {
      x = x * 7;
      throw std::runtime_error("thrown");
    }
  }
};
TEMPER_MODULE(Many);

TEST(CallTest, OverloadsKeepApart) {
  Many m;
  m->compile();
  const auto x = torch::ones({3});
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(m(x).equal(x + 1));
    EXPECT_TRUE(m(x, int64_t{2}).equal(x + 2));
    EXPECT_TRUE(m(x, 2.0).equal(x * 2));
  }
  EXPECT_COUNTERS(
      temper::counters_of(m),
      eager == 0 && program_calls == 15 && admissions == 3);
}

TEST(CallTest, StructsTuplesAndContainers) {
  Many m;
  m->compile();
  const auto x = torch::ones({3});
  for (int i = 0; i < kCalls; ++i) {
    const auto [a, n, s] = m(Batch{x, std::nullopt, 2.0});
    EXPECT_TRUE(a.equal(x * 2));
    EXPECT_EQ(n, 3);
    EXPECT_EQ(s, "whole");
    const auto masked = m(Batch{x, x * 0, 2.0});
    EXPECT_TRUE(std::get<0>(masked).equal(x * 0));
    EXPECT_EQ(std::get<2>(masked), "masked");
    const auto map = m(std::vector<Tensor>{x, x + 1});
    EXPECT_TRUE(map.at("twice").at(1).equal(x * 4));
    EXPECT_TRUE(map.at("same").at(0).is_same(x));
  }
  EXPECT_COUNTERS(
      temper::counters_of(m),
      eager == 0 && program_calls == 15 && admissions == 3);
}

TEST(CallTest, ArgumentsByReference) {
  Many m;
  m->compile();
  for (int i = 0; i < kCalls; ++i) {
    auto x = torch::ones({3});
    const auto original = x;
    m(x, "nothing");
    EXPECT_TRUE(x.is_same(original));
    m(x, "write");
    EXPECT_TRUE(x.is_same(original));
    EXPECT_TRUE(x.equal(torch::full({3}, 5.0)));
    m(x, "assign");
    EXPECT_FALSE(x.is_same(original));
    EXPECT_TRUE(x.equal(torch::full({3}, 15.0)));
    EXPECT_THROW(m(x, "throw"), std::runtime_error);
    EXPECT_TRUE(x.equal(torch::full({3}, 105.0)));
  }
  EXPECT_COUNTERS(
      temper::counters_of(m),
      reasons == Reasons{{"the code threw in each trace", 3}} &&
          program_calls == 15 && admissions == 3);
}

// What is taken by value is not lost where the call runs plainly.
TEST(CallTest, AVariableThatIsGivenTwice) {
  const auto assign = [](Tensor& out, Tensor b, const Tensor& c) {
    out = b + c * 2;
    return c + out; // `c` is `out`.
  };
  auto f = temper::compile(assign);
  for (int i = 0; i < 3; ++i) {
    auto expected = torch::full({3}, 1.0 + i);
    auto given = expected.clone();
    const auto y = assign(expected, torch::ones({3}), expected);
    EXPECT_TRUE(f(given, torch::ones({3}), given).equal(y));
    EXPECT_TRUE(given.equal(expected));
  }
  EXPECT_EQ(
      f.counters()
          .eager_calls["a variable that is taken by reference is given twice"],
      3);
}

// An element beside its container, a member beside its struct.
TEST(CallTest, APartIsGivenBesideItsWhole) {
  struct Pack {
    std::vector<Tensor> list;
    int64_t n = 2;
  };
  constexpr const char* kReason =
      "a variable that is taken by reference is given twice";
  const auto ones = torch::ones({3});
  auto vector = temper::compile([](std::vector<Tensor>& v, Tensor& t) {
    t = t * 2;
    return v[0] + 1;
  });
  auto view = temper::compile([](at::TensorList v, Tensor& t) {
    t = t * 2;
    return v[0] + 1;
  });
  auto pack = temper::compile([](Pack& p, Tensor& t) {
    t = t * 2;
    return p.list[0] + 1;
  });
  auto map = temper::compile([](std::map<std::string, Tensor>& m, Tensor& t) {
    t = t * 2;
    return m.at("a") + 1;
  });
  std::vector<Tensor> v{ones, ones};
  std::vector<Tensor> w{ones, ones};
  Pack p{{ones, ones}};
  std::map<std::string, Tensor> m{{"a", ones}};
  for (int i = 1; i < 4; ++i) {
    const auto expected = ones * (1 << i) + 1;
    EXPECT_TRUE(vector(v, v[0]).equal(expected));
    EXPECT_TRUE(view(at::TensorList(w), w[0]).equal(expected));
    EXPECT_TRUE(pack(p, p.list[0]).equal(expected));
    EXPECT_TRUE(map(m, m["a"]).equal(expected));
  }
  EXPECT_EQ(vector.counters().eager_calls[kReason], 3);
  EXPECT_EQ(view.counters().eager_calls[kReason], 3);
  EXPECT_EQ(pack.counters().eager_calls[kReason], 3);
  EXPECT_EQ(map.counters().eager_calls[kReason], 3);
  // What only lies beside is no part.
  auto flags = temper::compile(
      [](std::vector<bool>& a, std::vector<bool>& b, Tensor& t) {
        t = t * (a[0] ? 2 : 3) + (b[1] ? 1 : 0);
        return t + 1;
      });
  std::vector<bool> a{true, false};
  std::vector<bool> b{true, true};
  for (int i = 0; i < 4; ++i) {
    auto t = torch::ones({3});
    EXPECT_TRUE(flags(a, b, t).equal(torch::full({3}, 4.0)));
  }
  EXPECT_EQ(flags.counters().program_calls, 3);
}

// Eager and traced calls leave the caller's variables where they are.
TEST(CallTest, ReferencesIntoArgumentsStayValid) {
  auto f = temper::compile([](std::vector<Tensor>& v) {
    v[0] = v[0] * 2;
    return v[0] + 1;
  });
  std::vector<Tensor> v{torch::ones({3}), torch::ones({3})};
  const Tensor& first = v[0];
  EXPECT_TRUE(f(v).equal(torch::full({3}, 3.0)));
  EXPECT_EQ(&first, v.data());
  EXPECT_TRUE(first.equal(torch::full({3}, 2.0)));
  EXPECT_COUNTERS(f.counters(), calls == 1 && traces == 1);
}

TEST(CallTest, SpansThatMayBeWritten) {
  auto f = temper::compile([](std::span<Tensor> s) {
    s[0] = s[0] * 2;
    return s[0] + 1;
  });
  auto g =
      temper::compile([](std::span<const Tensor> s) { return s[0] + s[1]; });
  std::vector<Tensor> v{torch::ones({3}), torch::ones({3})};
  for (int i = 1; i < 5; ++i) {
    const auto expected = torch::full({3}, 1 << i);
    EXPECT_TRUE(f(std::span<Tensor>(v)).equal(expected + 1));
    EXPECT_TRUE(v[0].equal(expected));
    EXPECT_TRUE(g(std::span<const Tensor>(v)).equal(expected + 1));
  }
  EXPECT_EQ(f.counters().program_calls, 0);
  EXPECT_EQ(f.counters().eager_total(), 4);
  EXPECT_EQ(g.counters().program_calls, 3);
}

TEST(CallTest, Lambdas) {
  auto w = torch::ones({3});
  double scale = 2.0;
  auto f =
      temper::compile([&](const Tensor& x) { return x * w * scale; }, w, scale);
  const auto x = torch::ones({3});
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(f(x).equal(x * 2));
  }
  w = w - 0.5;
  scale = 3.0;
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(f(x).equal(x * 1.5));
  }
  EXPECT_COUNTERS(
      f.counters(), eager == 0 && program_calls == 10 && admissions == 2);
  auto counting =
      temper::compile([n = 0](const Tensor& t) mutable { return t + ++n; });
  for (int i = 1; i <= kCalls; ++i) {
    EXPECT_TRUE(counting(x).equal(x + i));
  }
  EXPECT_COUNTERS(
      counting.counters(),
      because("the call changes watched state: ") && program_calls == 0);
}

} // namespace
