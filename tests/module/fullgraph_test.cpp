// fullgraph: what throws, what does not, and the texts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "support/counters.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using temper::testing::Reasons;
using torch::Tensor;

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const temper::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

struct SineImpl : temper::Module<SineImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x.sin();
  }
};
TEMPER_MODULE(Sine);

constexpr const char* kEagerBackend =
    "the backend is \"eager\": graphs are only recorded";

// The code is traced, and always runs itself.
TEST(EagerBackendTest, RecordsAndRunsTheCode) {
  Sine net;
  net->compile(CompileOptions().backend("eager"));
  const auto x = torch::rand({3});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(net(x).equal(x.sin()));
  }
  EXPECT_COUNTERS(
      temper::counters_of(net), reasons == Reasons{{kEagerBackend, 4}});
  EXPECT_COUNTERS(
      temper::counters_of(net),
      calls == 5 && traces == 1 && shadow_runs == 0 && admissions == 0 &&
          graphs == 0 && compiles == 0 && program_calls == 0);
  // Another backend starts afresh.
  net->compile(CompileOptions());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(net(x).equal(x.sin()));
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      eager == 4 && traces == 2 && admissions == 1 && program_calls == 2);
}

TEST(EagerBackendTest, BackwardsAreEagers) {
  Sine net;
  net->compile(CompileOptions().backend("eager"));
  for (int i = 0; i < 5; ++i) {
    const auto x = torch::rand({3}).requires_grad_();
    net(x).sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  }
  EXPECT_COUNTERS(
      temper::counters_of(net), reasons == Reasons{{kEagerBackend, 4}});
  EXPECT_COUNTERS(
      temper::counters_of(net),
      calls == 5 && traces == 1 && compiles == 0 && program_calls == 0 &&
          program_backwards == 0);
}

TEST(FullgraphTest, TheEagerBackendIsAReasonToThrow) {
  Sine net;
  net->compile(CompileOptions().backend("eager").fullgraph(true));
  const auto x = torch::rand({3});
  EXPECT_TRUE(net(x).equal(x.sin())); // It finds out.
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(
        error_of([&] { net(x); }),
        std::string("temper: cannot compile 'Sine': ") + kEagerBackend +
            ". To let it run eagerly use CompileOptions().fullgraph(false).");
  }
  EXPECT_COUNTERS(temper::counters_of(net), traces == 1 && eager == 0);
}

TEST(FullgraphTest, AnUnknownBackwardDoesNotThrow) {
  Sine net;
  net->compile(CompileOptions().fullgraph(true));
  const auto step = [&](bool dense) {
    const auto x = torch::rand({3}).requires_grad_();
    const auto y = net(x);
    EXPECT_TRUE(y.equal(x.sin()));
    // Not expanded, as that of a sum.
    dense ? y.backward(torch::ones({3})) : y.sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  };
  for (int i = 0; i < 3; ++i) {
    step(/*dense=*/false);
  }
  for (int i = 0; i < 4; ++i) {
    step(/*dense=*/true); // Unknown, traced, by program.
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(
      temper::counters_of(net),
      traces == 2 && program_calls == 5 && program_backwards == 4);
}

// Once it is final, the next call throws.
TEST(FullgraphTest, TheCallAfterADoubleBackwardThrows) {
  Sine net;
  net->compile(CompileOptions().fullgraph(true));
  for (int i = 0; i < 3; ++i) {
    net(torch::rand({3}).requires_grad_()).sum().backward();
  }
  const auto x = torch::rand({3}).requires_grad_();
  const auto y = net(x).sum();
  const auto first =
      torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  EXPECT_TRUE(
      torch::autograd::grad({first.sum()}, {x})[0].equal(-x.detach().sin()));
  EXPECT_EQ(
      error_of([&] { net(x); }),
      "temper: cannot compile 'Sine': double backward (create_graph) through "
      "the call. To let it run eagerly use CompileOptions().fullgraph(false).");
}

/// Takes a gradient inside.
struct ForceImpl : temper::Module<ForceImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return torch::autograd::grad({x.sin().sum()}, {x})[0] * 2;
  }
};
TEMPER_MODULE(Force);

TEST(FullgraphTest, CallsWhoseInputsHaveHooksDoNotThrow) {
  Force net;
  net->compile(CompileOptions().fullgraph(true));
  for (int i = 0; i < 9; ++i) {
    const auto x = torch::rand({3}).requires_grad_();
    const bool hooked = i >= 3 && i < 6;
    if (hooked) {
      x.register_hook([](const Tensor& g) { return g * 10; });
    }
    EXPECT_TRUE(net(x).equal(x.detach().cos() * (hooked ? 10 : 1) * 2));
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons ==
          Reasons{
              {"a gradient that is taken inside the call runs a hook of one of "
               "its inputs",
               3}});
  EXPECT_COUNTERS(temper::counters_of(net), traces == 1 && program_calls == 5);
}

/// Gives what temper has no form for.
struct KeeperImpl : temper::Module<KeeperImpl> {
  Tensor kept = torch::ones({2});
  void reset() override {}
  Tensor& forward() {
    return kept;
  }
};
TEMPER_MODULE(Keeper);

TEST(FullgraphTest, CallsThatCanHaveNoSignatureThrow) {
  Keeper net;
  net->compile();
  EXPECT_EQ(&net(), &net->kept);
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons == Reasons{{"the result is a reference; return it by value", 1}});
  net->compile(CompileOptions().fullgraph(true));
  EXPECT_EQ(
      error_of([&] { net(); }),
      "temper: cannot compile a call of 'Keeper': the result is a reference; "
      "return it by value, expected tensors and plain values. To let it run "
      "eagerly use CompileOptions().fullgraph(false).");
  EXPECT_COUNTERS(temper::counters_of(net), calls == 1 && eager == 1);
}

} // namespace
