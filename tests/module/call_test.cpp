// Calls of compiled modules and functions give what eager calls give: values,
// changed arguments, exceptions.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "temper/temper.h"

namespace {

using torch::Tensor;

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
  const auto eager = net->forward(x);
  EXPECT_TRUE(net(x).equal(eager));
  net->compile();
  EXPECT_TRUE(net->is_compiled());
  EXPECT_TRUE(net(x).equal(eager));
  EXPECT_TRUE((*net)(x).equal(eager));
  EXPECT_TRUE(net->forward(x).equal(eager));
  EXPECT_TRUE(net->training_step(x, eager).equal(torch::zeros({})));
  EXPECT_EQ(temper::counters_of(net).calls, 3);
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
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(m(x).equal(x + 1));
    EXPECT_TRUE(m(x, int64_t{2}).equal(x + 2));
    EXPECT_TRUE(m(x, 2.0).equal(x * 2));
  }
}

TEST(CallTest, StructsTuplesAndContainers) {
  Many m;
  m->compile();
  const auto x = torch::ones({3});
  for (int i = 0; i < 2; ++i) {
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
}

TEST(CallTest, ArgumentsByReference) {
  Many m;
  m->compile();
  for (int i = 0; i < 2; ++i) {
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
}

TEST(CallTest, Lambdas) {
  auto w = torch::ones({3});
  double scale = 2.0;
  auto f =
      temper::compile([&](const Tensor& x) { return x * w * scale; }, w, scale);
  const auto x = torch::ones({3});
  EXPECT_TRUE(f(x).equal(x * 2));
  w = w - 0.5;
  scale = 4.0;
  EXPECT_TRUE(f(x).equal(x * 2));
  EXPECT_EQ(temper::counters_of(f).calls, 2);
  auto counting =
      temper::compile([n = 0](const Tensor& t) mutable { return t + ++n; });
  EXPECT_TRUE(counting(x).equal(x + 1));
  EXPECT_TRUE(counting(x).equal(x + 2));
}

} // namespace
