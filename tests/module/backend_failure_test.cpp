// A backend that fails: the user's calls and backwards go on, with the reason.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>

#include "base/log.h"
#include "codegen/backend.h"
#include "codegen/compile_aten.h"
#include "passes/unsupported.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using temper::codegen::BackendOptions;
using temper::graph::Graph;
using testing::ElementsAre;
using testing::Pair;
using testing::UnorderedElementsAre;
using torch::Tensor;

// "broken" fails always, "forward only" where there is a backward, "choosy"
// says that it can't.
void register_backends() {
  static const bool once = [] {
    namespace codegen = temper::codegen;
    codegen::register_backend(
        "broken",
        [](const Graph&, const BackendOptions&)
            -> std::shared_ptr<const temper::runtime::Artifact> {
          throw std::runtime_error("it is broken");
        });
    codegen::register_backend(
        "forward only", [](const Graph& raw, const BackendOptions& options) {
          TORCH_CHECK(raw.segments.empty(), "no backward here");
          return codegen::compile_aten(raw, options);
        });
    codegen::register_backend(
        "choosy",
        [](const Graph&, const BackendOptions&)
            -> std::shared_ptr<const temper::runtime::Artifact> {
          throw temper::passes::Unsupported("aten::sin is not to its liking");
        });
    return true;
  }();
  (void)once;
}

Tensor code(Tensor x) {
  return (x.sin() * 2).sum();
}

// Four steps of training, or of inference, that must give eager's values.
template <class F>
void call(F& f, bool train) {
  for (int i = 0; i < 4; ++i) {
    auto x = torch::randn({3}).requires_grad_(train);
    const auto y = f(x);
    EXPECT_TRUE(y.equal(code(x.detach())));
    if (train) {
      y.backward();
      EXPECT_TRUE(x.grad().equal(x.detach().cos() * 2));
    }
  }
}

TEST(BackendFailureTest, CallsGoOnEagerly) {
  register_backends();
  for (const bool train : {false, true}) {
    const temper::base::LogCapture log;
    auto f = temper::compile(code, CompileOptions().backend("broken"));
    call(f, train);
    const auto counters = f.counters();
    EXPECT_EQ(counters.traces, 1);
    EXPECT_EQ(counters.compiles, 1);
    EXPECT_EQ(counters.admissions, 0);
    EXPECT_THAT(
        counters.eager_calls,
        UnorderedElementsAre(Pair("an internal error while compiling", 3)));
    EXPECT_THAT(
        log.lines(),
        ElementsAre(testing::HasSubstr(
            "could not be compiled and runs eagerly; please report this: it is "
            "broken")));
    // Another backend starts afresh.
    f.set_options(CompileOptions());
    call(f, train);
    EXPECT_EQ(f.counters().compiles, 2);
    EXPECT_EQ(f.counters().program_calls, 3);
    EXPECT_EQ(f.counters().eager_total(), 3);
  }
}

TEST(BackendFailureTest, TheUsersBackwardGoesOn) {
  register_backends();
  const temper::base::LogCapture log;
  auto f = temper::compile(code, CompileOptions().backend("forward only"));
  call(f, /*train=*/true);
  EXPECT_EQ(f.counters().compiles, 1);
  EXPECT_EQ(f.counters().program_backwards, 0);
  EXPECT_THAT(
      f.counters().eager_calls,
      UnorderedElementsAre(Pair("an internal error while compiling", 3)));
  EXPECT_TRUE(log.saw("please report this: no backward here"));
  EXPECT_EQ(log.lines().size(), 1U);
  // Without a backward it works.
  call(f, /*train=*/false);
  EXPECT_EQ(f.counters().program_calls, 3);
}

TEST(BackendFailureTest, WhatABackendCannotDoIsTheReason) {
  register_backends();
  const temper::base::LogCapture log;
  auto f = temper::compile(code, CompileOptions().backend("choosy"));
  call(f, /*train=*/true);
  EXPECT_THAT(
      f.counters().eager_calls,
      UnorderedElementsAre(Pair("aten::sin is not to its liking", 3)));
  EXPECT_THAT(log.lines(), ElementsAre());
  f.set_options(CompileOptions().backend("choosy").fullgraph(true));
  const auto x = torch::randn({3});
  EXPECT_TRUE(f(x).equal(code(x))); // It finds out.
  EXPECT_THAT(
      [&] { f(x); },
      testing::ThrowsMessage<temper::Error>(
          testing::HasSubstr("aten::sin is not to its liking")));
}

} // namespace
