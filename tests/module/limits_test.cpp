// The limits of a call site: graphs, signatures. What was compiled is kept, the
// rest runs eagerly, and that is said once.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <string>

#include "base/log.h"
#include "runtime/artifact_store.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using testing::ContainsRegex;
using testing::Pair;
using testing::UnorderedElementsAre;
using torch::Tensor;

constexpr int64_t kKinds = 12;

// A graph of its own for each kind.
Tensor chain(Tensor x, int64_t kind) {
  for (int64_t i = 0; i < kind; ++i) {
    x = x.sin();
  }
  return x * 2;
}

int64_t lines_with(const temper::base::LogCapture& log, const char* regex) {
  const auto lines = log.lines();
  return std::count_if(lines.begin(), lines.end(), [&](const auto& line) {
    return testing::Matches(ContainsRegex(regex))(line);
  });
}

// Calls each kind `calls` times and checks the values.
template <class F>
void call_kinds(F& f, int64_t first, int64_t end, int calls = 4) {
  for (auto kind = first; kind < end; ++kind) {
    for (int i = 0; i < calls; ++i) {
      const auto x = torch::randn({5});
      EXPECT_TRUE(f(x, kind).equal(chain(x, kind))) << "kind " << kind;
    }
  }
}

TEST(LimitsTest, GraphsBeyondTheDefaultRunEagerly) {
  temper::runtime::default_store().clear(); // Other tests' graphs.
  const temper::base::LogCapture log;
  auto f = temper::compile(chain);
  call_kinds(f, 0, kKinds);
  auto counters = f.counters();
  EXPECT_EQ(counters.traces, kKinds);
  EXPECT_EQ(counters.compiles, 8);
  EXPECT_EQ(counters.admissions, 8);
  EXPECT_EQ(counters.program_calls, 8 * 3);
  // Of each other kind the first call was traced.
  EXPECT_THAT(
      counters.eager_calls,
      UnorderedElementsAre(Pair("limit of graphs reached", 4 * 3)));
  EXPECT_EQ(
      lines_with(
          log,
          "has reached its limit of 8 graphs; calls that need others run "
          "eagerly. Raise it with CompileOptions\\(\\).max_graphs\\(n\\)"),
      1);
  EXPECT_EQ(log.lines().size(), 1U);
  // The first eight are kept.
  call_kinds(f, 0, 8);
  EXPECT_EQ(f.counters().program_calls, 8 * 3 + 8 * 4);
  EXPECT_EQ(f.counters().eager_total(), 4 * 3);
}

TEST(LimitsTest, SignaturesBeyondTheDefaultRunEagerly) {
  const temper::base::LogCapture log;
  auto f = temper::compile([](Tensor x) { return x.cos() + 1; });
  for (int round = 0; round < 3; ++round) {
    for (int64_t size = 2; size < 302; ++size) {
      const auto x = torch::randn({size});
      EXPECT_TRUE(f(x).equal(x.cos() + 1));
    }
  }
  const auto counters = f.counters();
  EXPECT_EQ(counters.traces, 256);
  EXPECT_EQ(counters.admissions, 256);
  EXPECT_EQ(counters.compiles, 1);
  EXPECT_EQ(counters.program_calls, 2 * 256);
  EXPECT_THAT(
      counters.eager_calls,
      UnorderedElementsAre(Pair("limit of signatures reached", 3 * 44)));
  EXPECT_EQ(lines_with(log, "has reached its limit of 256 signatures"), 1);
  EXPECT_EQ(log.lines().size(), 1U);
}

TEST(LimitsTest, CanBeSet) {
  const temper::base::LogCapture log;
  auto f = temper::compile(chain, CompileOptions().max_graphs(2));
  call_kinds(f, 0, 4);
  EXPECT_EQ(f.counters().admissions, 2);
  EXPECT_EQ(f.counters().eager_calls["limit of graphs reached"], 2 * 3);
  EXPECT_EQ(lines_with(log, "its limit of 2 graphs"), 1);
  f.set_options(CompileOptions().max_signatures(3));
  call_kinds(f, 0, 4);
  EXPECT_EQ(f.counters().admissions, 2 + 3);
  EXPECT_EQ(f.counters().eager_calls["limit of signatures reached"], 4);
  // Other options, another limit: said again.
  EXPECT_EQ(lines_with(log, "its limit of 3 signatures"), 1);
  f.set_options(CompileOptions().max_graphs(3));
  call_kinds(f, 0, 4);
  EXPECT_EQ(lines_with(log, "its limit of 3 graphs"), 1);
  EXPECT_EQ(log.lines().size(), 3U);
}

TEST(LimitsTest, CallsBeyondThemAreLogged) {
  const temper::base::LogCapture log;
  temper::base::set_log_topics("eager");
  auto f =
      temper::compile(chain, CompileOptions().max_graphs(1).max_signatures(2));
  call_kinds(f, 0, 3, /*calls=*/2);
  EXPECT_EQ(lines_with(log, "runs eagerly: limit of graphs reached$"), 1);
  EXPECT_EQ(lines_with(log, "runs eagerly: limit of signatures reached$"), 2);
  temper::base::set_log_topics("");
}

// A new size needs a trace and a shadow run, but no graph and no compile.
TEST(LimitsTest, SizesShareTheirGraph) {
  auto f = temper::compile([](Tensor x, const Tensor& w) {
    return torch::tanh(x.mm(w)).sum(1).square();
  });
  auto w = torch::randn({4, 5}).requires_grad_();
  const temper::base::LogCapture log;
  temper::base::set_log_topics("store");
  for (int64_t batch = 3; batch < 11; ++batch) {
    for (int i = 0; i < 4; ++i) {
      const auto x = torch::randn({batch, 4});
      f(x, w).sum().backward();
      const torch::NoGradGuard no_grad;
      EXPECT_TRUE(f(x, w).equal(torch::tanh(x.mm(w)).sum(1).square()));
    }
  }
  temper::base::set_log_topics("");
  const auto counters = f.counters();
  EXPECT_EQ(counters.traces, 16);
  EXPECT_EQ(counters.shadow_runs, 16);
  EXPECT_EQ(counters.admissions, 16);
  EXPECT_EQ(counters.graphs, 2);
  EXPECT_EQ(counters.compiles, 2);
  EXPECT_EQ(counters.program_calls, 16 * 3);
  EXPECT_EQ(counters.program_backwards, 8 * 3);
  EXPECT_EQ(counters.eager_total(), 0);
  EXPECT_EQ(lines_with(log, "compiled in"), 2);
  EXPECT_EQ(lines_with(log, "found$"), 14);
}

} // namespace
