// From the first call to the third, counted call by call: what a call site must
// have seen before guards alone decide.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <ostream>
#include <string>

#include "temper/temper.h"

namespace {

using temper::Counters;
using torch::Tensor;

/// What a call site has done so far.
struct Progress {
  int64_t traces = 0;
  int64_t shadow_runs = 0;
  int64_t admissions = 0;
  int64_t compiles = 0;
  int64_t program_calls = 0;
  int64_t eager = 0;

  bool operator==(const Progress&) const = default;
  friend std::ostream& operator<<(std::ostream& out, const Progress& p) {
    return out << p.traces << " traces, " << p.shadow_runs << " shadow runs, "
               << p.admissions << " admissions, " << p.compiles << " compiles, "
               << p.program_calls << " program calls, " << p.eager << " eager";
  }
};

Progress progress_of(const Counters& c) {
  return {
      c.traces,
      c.shadow_runs,
      c.admissions,
      c.compiles,
      c.program_calls,
      c.eager_total()};
}

template <class F>
Progress after_call(F& f, const Tensor& x, const Tensor& expected) {
  EXPECT_TRUE(f(x).equal(expected));
  return progress_of(f.counters());
}

// Each test has a graph that no other test of this process compiles.

TEST(AdmissionTest, ATraceThenAShadowRunThenTheProgram) {
  auto f = temper::compile([](const Tensor& x) { return x.erfc().sinh(); });
  const auto x = torch::rand({3});
  const auto y = x.erfc().sinh();
  EXPECT_EQ(progress_of(f.counters()), (Progress{}));
  EXPECT_EQ(after_call(f, x, y), (Progress{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(after_call(f, x, y), (Progress{1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(after_call(f, x, y), (Progress{1, 1, 1, 1, 2, 0}));
  EXPECT_EQ(after_call(f, x, y), (Progress{1, 1, 1, 1, 3, 0}));
  EXPECT_EQ(f.counters().calls, 4);
  EXPECT_EQ(f.counters().graphs, 1);
}

TEST(AdmissionTest, IsCompiledWhenItsBackwardHasCome) {
  auto f = temper::compile(
      [](const Tensor& x) { return (x.erfc() * x.cosh()).sum(); });
  const auto step = [&] {
    const auto x = torch::rand({3}, torch::requires_grad());
    f(x).backward();
    const auto found = x.grad();
    const auto again = x.detach().requires_grad_();
    (again.erfc() * again.cosh()).sum().backward();
    EXPECT_TRUE(found.equal(again.grad()));
    return progress_of(f.counters());
  };
  const auto first =
      f(torch::rand({3}, torch::requires_grad())); // Held: it may come.
  EXPECT_EQ(progress_of(f.counters()), (Progress{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(step(), (Progress{1, 0, 0, 0, 0, 1}));
  first.backward();
  EXPECT_EQ(progress_of(f.counters()), (Progress{1, 0, 0, 1, 0, 1}));
  EXPECT_EQ(step(), (Progress{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(step(), (Progress{1, 1, 1, 1, 2, 1}));
  EXPECT_EQ(f.counters().program_backwards, 2);
}

TEST(AdmissionTest, ASecondSiteWithTheGraphHasItsOwnTraceAndShadowRun) {
  const auto code = [](const Tensor& x) { return x.sinh().lgamma(); };
  const auto x = torch::rand({3}) + 1;
  const auto y = code(x);
  auto first = temper::compile(code);
  for (int i = 0; i < 3; ++i) {
    after_call(first, x, y);
  }
  EXPECT_EQ(progress_of(first.counters()), (Progress{1, 1, 1, 1, 2, 0}));
  auto second = temper::compile(code);
  EXPECT_EQ(after_call(second, x, y), (Progress{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(after_call(second, x, y), (Progress{1, 1, 1, 0, 1, 0}));
  EXPECT_EQ(after_call(second, x, y), (Progress{1, 1, 1, 0, 2, 0}));
  EXPECT_EQ(second.counters().graphs, 0);
  EXPECT_EQ(progress_of(first.counters()), (Progress{1, 1, 1, 1, 2, 0}));
}

struct LayerImpl : temper::Module<LayerImpl> {
  torch::nn::Linear fc{nullptr};
  LayerImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(3, 3));
  }
  Tensor forward(const Tensor& x) {
    return fc(x).asinh().erfc();
  }
};
TEMPER_MODULE(Layer);

TEST(AdmissionTest, SoHasEachModuleOfAClass) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::rand({2, 3});
  Layer first, second;
  const auto call = [&](Layer& net) {
    EXPECT_TRUE(net(x).equal(net->forward(x)));
    return progress_of(temper::counters_of(net));
  };
  first->compile();
  second->compile();
  EXPECT_EQ(call(first), (Progress{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(call(first), (Progress{1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(call(second), (Progress{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(call(second), (Progress{1, 1, 1, 0, 1, 0}));
  EXPECT_EQ(call(second), (Progress{1, 1, 1, 0, 2, 0}));
  // A clone is a site of its own, too.
  Layer third(std::dynamic_pointer_cast<LayerImpl>(first->clone()));
  EXPECT_EQ(call(third), (Progress{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(call(third), (Progress{1, 1, 1, 0, 1, 0}));
}

// No guard sees it.
int turns = 0;

TEST(AdmissionTest, ACallThatDivergesAdmitsNothing) {
  turns = 0;
  auto f = temper::compile([](const Tensor& x) {
    return ++turns == 2 ? x.lgamma().cosh() : x.lgamma().sinh();
  });
  const auto x = torch::rand({3}) + 1;
  const auto usual = x.lgamma().sinh();
  EXPECT_EQ(after_call(f, x, usual), (Progress{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(after_call(f, x, x.lgamma().cosh()), (Progress{1, 1, 0, 1, 0, 1}));
  // Traced again; the graph is known.
  EXPECT_EQ(after_call(f, x, usual), (Progress{2, 1, 0, 1, 0, 1}));
  EXPECT_EQ(after_call(f, x, usual), (Progress{2, 2, 1, 1, 1, 1}));
  EXPECT_EQ(after_call(f, x, usual), (Progress{2, 2, 1, 1, 2, 1}));
}

TEST(AdmissionTest, WhatOneSiteHasProvedIsNoProofForAnother) {
  turns = 0;
  const auto code = [](const Tensor& x) { return x.erfc().lgamma(); };
  const auto x = torch::rand({3});
  auto proved = temper::compile(code);
  for (int i = 0; i < 3; ++i) {
    after_call(proved, x, code(x));
  }
  // Has that graph in each of its odd calls.
  auto f = temper::compile([code](const Tensor& t) {
    return ++turns % 2 == 0 ? t.erfc().digamma() : code(t);
  });
  const auto other = x.erfc().digamma();
  EXPECT_EQ(after_call(f, x, code(x)), (Progress{1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(after_call(f, x, other), (Progress{1, 1, 0, 0, 0, 1}));
  EXPECT_EQ(after_call(f, x, code(x)), (Progress{2, 1, 0, 0, 0, 1}));
  EXPECT_EQ(after_call(f, x, other), (Progress{2, 2, 0, 0, 0, 2}));
  EXPECT_EQ(after_call(f, x, code(x)), (Progress{3, 2, 0, 0, 0, 2}));
  EXPECT_EQ(after_call(f, x, other), (Progress{3, 3, 0, 0, 0, 3}));
  // The third was the last try.
  EXPECT_EQ(after_call(f, x, code(x)), (Progress{3, 3, 0, 0, 0, 4}));
  const auto counters = f.counters();
  ASSERT_EQ(counters.eager_calls.size(), 1U);
  EXPECT_EQ(
      counters.eager_calls.begin()->first.find("differs from call to call: "),
      0U)
      << counters.eager_calls.begin()->first;
}

TEST(AdmissionTest, OptionsThatChangeTakeAdmissionsBack) {
  auto f = temper::compile([](const Tensor& x) { return x.digamma().erfc(); });
  const auto x = torch::rand({3}) + 1;
  const auto y = x.digamma().erfc();
  for (int i = 0; i < 3; ++i) {
    after_call(f, x, y);
  }
  f.set_options(temper::CompileOptions().max_graphs(7));
  EXPECT_EQ(after_call(f, x, y), (Progress{2, 1, 1, 1, 2, 0}));
  EXPECT_EQ(after_call(f, x, y), (Progress{2, 2, 2, 1, 3, 0}));
}

} // namespace
