// Options beyond their names: numerics, fullgraph; and what explain says of
// costs.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/log.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
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

// A graph that no other test of this process compiles.
Tensor own_graph(const Tensor& x) {
  return (x.sinh() + x.cosh() * x.atan()).erf().log1p();
}

TEST(NumericsTest, WrongOnesFailInCompile) {
  EXPECT_EQ(
      error_of([] {
        temper::compile(own_graph, CompileOptions().numerics("exact"));
      }),
      "temper: cannot compile 'at::Tensor (*)(at::Tensor const&)': option "
      "numerics is 'exact', expected 'accurate', 'eager' or 'fast'. The "
      "default is CompileOptions().numerics(\"accurate\").");
  auto f = temper::compile(own_graph);
  EXPECT_THROW(
      f.set_options(CompileOptions().numerics("Eager")), temper::Error);
  EXPECT_THROW(f.set_options(CompileOptions().numerics("")), temper::Error);
}

TEST(NumericsTest, EqualOnesAreEqualOptions) {
  EXPECT_EQ(CompileOptions(), CompileOptions().numerics("accurate"));
  EXPECT_NE(CompileOptions(), CompileOptions().numerics("eager"));
  EXPECT_EQ(
      CompileOptions().numerics("fast"), CompileOptions().numerics("fast"));
}

// The lines of the artifact store, without hash and time.
std::vector<std::string> store_lines(const temper::base::LogCapture& log) {
  std::vector<std::string> lines;
  for (const std::string& line : log.lines()) {
    lines.push_back(line.substr(line.find('/') + 1));
    lines.back().resize(
        std::min(lines.back().size(), lines.back().find(" in ")));
  }
  return lines;
}

TEST(NumericsTest, HaveArtifactsOfTheirOwnAndKeepEagersBitsInAten) {
  const temper::base::LogCapture log;
  temper::base::set_log_topics("store");
  const auto x = torch::rand({3, 5});
  const Tensor expected = own_graph(x);
  auto f = temper::compile(own_graph);
  const auto run = [&](const std::string& numerics) {
    f.set_options(CompileOptions().numerics(numerics));
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(f(x).equal(expected)) << numerics;
    }
  };
  run("accurate");
  run("accurate"); // The same options: nothing happens.
  EXPECT_EQ(f.counters().traces, 1);
  run("eager");
  run("fast");
  run("accurate"); // Traced anew, but its artifact is still there.
  EXPECT_EQ(f.counters().admissions, 4);
  EXPECT_THAT(
      store_lines(log),
      ElementsAre(
          "aten/accurate: compiled",
          "aten/eager: compiled",
          "aten/fast: compiled",
          "aten/accurate: found"));
  temper::base::set_log_topics("");
}

TEST(FreezeWeightsTest, HasArtifactsOfItsOwnAndReadsLiveWeightsInAten) {
  const temper::base::LogCapture log;
  temper::base::set_log_topics("store");
  const auto graph = [](const Tensor& x) { return x.sin() * 3 + x.cos(); };
  auto w = torch::rand({3, 5});
  auto f =
      temper::compile([&w, graph](const Tensor& x) { return graph(x * w); }, w);
  const auto x = torch::rand({3, 5});
  for (const bool frozen : {false, true}) {
    f.set_options(CompileOptions().freeze_weights(frozen));
    for (int i = 0; i < 4; ++i) {
      w.data().mul_(1.5);
      EXPECT_TRUE(f(x).equal(graph(x * w))) << frozen << i;
    }
  }
  EXPECT_EQ(f.counters().program_calls, 6);
  EXPECT_THAT(
      store_lines(log),
      ElementsAre("aten/accurate: compiled", "aten/accurate/frozen: compiled"));
  EXPECT_NE(CompileOptions(), CompileOptions().freeze_weights(true));
  temper::base::set_log_topics("");
}

TEST(FullgraphTest, ThrowsFromTheCallAfterTheOneThatFoundOut) {
  auto f = temper::compile(
      [](const Tensor& x) { return x * x.sum().item<double>(); },
      CompileOptions().fullgraph(true));
  const auto x = torch::ones({3});
  EXPECT_TRUE(f(x).equal(x * 3)); // Traced: it has run by then.
  for (int i = 0; i < 2; ++i) {
    const std::string error = error_of([&] { f(x); });
    EXPECT_THAT(error, HasSubstr("temper: cannot compile '"));
    EXPECT_THAT(error, HasSubstr("aten::_local_scalar_dense"));
    EXPECT_THAT(error, HasSubstr("use CompileOptions().fullgraph(false)."));
  }
  EXPECT_EQ(f.counters().eager_total(), 0);
}

TEST(FullgraphTest, CallsThatWaitForABackwardDoNotThrow) {
  auto f = temper::compile(
      [](const Tensor& x) { return (x * x).sum(); },
      CompileOptions().fullgraph(true));
  const auto x = torch::ones({3}, torch::requires_grad());
  const Tensor first = f(x);
  EXPECT_TRUE(f(x).equal(first));
  EXPECT_EQ(
      f.counters().eager_calls.at("waiting for the backward of a traced call"),
      1);
  first.backward();
  EXPECT_TRUE(f(x).equal(first));
  EXPECT_EQ(f.counters().admissions, 1);
}

// What another thread may have caused is never final.
TEST(FullgraphTest, CallsBetweenDisturbedTracesDoNotThrow) {
  static int64_t seed = 0;
  auto f = temper::compile(
      [](const Tensor& x) {
        torch::manual_seed(++seed);
        return x * 2;
      },
      CompileOptions().fullgraph(true));
  const auto x = torch::ones({3});
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(f(x).equal(x * 2));
  }
  EXPECT_EQ(f.counters().traces, 4); // Calls 1, 2, 4 and 8.
}

TEST(FullgraphTest, AShadowRunThatDivergesDoesNotThrow) {
  static int calls = 0; // No guard sees it.
  calls = 0;
  auto f = temper::compile(
      [](const Tensor& x) { return ++calls == 2 ? x * 2 : x + 1; },
      CompileOptions().fullgraph(true));
  const auto x = torch::ones({3});
  for (int i = 1; i <= 5; ++i) {
    EXPECT_TRUE(f(x).equal(torch::full({3}, 2.0))) << i; // x * 2 is x + 1.
  }
  EXPECT_EQ(f.counters().eager_total(), 1);
  EXPECT_EQ(f.counters().traces, 2);
  EXPECT_EQ(f.counters().admissions, 1);
}

TEST(CostsTest, ExplainTellsWhatTracesShadowRunsAndCompilesTook) {
  auto f = temper::compile(
      [](const Tensor& x) { return (x.tan() - x.asinh()).sqrt().sigmoid(); });
  EXPECT_THAT(f.explain(), Not(HasSubstr("cost:")));
  f(torch::rand({3}));
  EXPECT_THAT(
      f.explain(),
      ContainsRegex("\n  cost: 1 trace [0-9.e-]+ ms, 1 compile [0-9.]+ ms\n"));
  f(torch::rand({3}));
  f(torch::rand({3}));
  f(torch::rand({4, 1}));
  // A second size is traced, and its graph is another one.
  EXPECT_THAT(
      f.explain(),
      ContainsRegex("\n  cost: 2 traces [0-9.]+ ms, 1 shadow run [0-9.e-]+ "
                    "ms, 2 compiles [0-9.]+ ms\n"));
}

} // namespace
