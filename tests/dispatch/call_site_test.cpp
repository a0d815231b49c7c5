// A call site hands its options to the backend.
#include "dispatch/call_site.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "base/counters.h"
#include "codegen/backend.h"
#include "codegen/compile_aten.h"
#include "temper/error.h"

namespace temper::dispatch {
namespace {

using codegen::Numerics;

std::vector<Numerics>& seen() {
  static std::vector<Numerics> seen;
  return seen;
}

TEST(CallSite, TellsTheBackendItsNumerics) {
  codegen::register_backend(
      "noting",
      [](const graph::Graph& raw, const codegen::BackendOptions& options) {
        seen().push_back(options.numerics);
        return codegen::compile_aten(raw, options);
      });
  SiteOptions options;
  options.backend = "noting";
  CallSite site("site", options, [](Watch&) {});
  Call call;
  call.tensors = {torch::rand({3})};
  const auto code = [](const std::vector<at::Tensor>& tensors) {
    Result result;
    result.tensors = {tensors[0].asinh().erf()};
    return result;
  };
  const auto make_rerun = []() -> Rerun { return {}; };
  for (const auto numerics :
       {Numerics::kAccurate,
        Numerics::kEager,
        Numerics::kFast,
        Numerics::kAccurate}) {
    options.numerics = numerics;
    site.set_options(options);
    for (int i = 0; i < 3; ++i) {
      const Result outcome = site.call(call, code, make_rerun);
      ASSERT_EQ(outcome.tensors.size(), 1U);
      EXPECT_TRUE(outcome.tensors[0].equal(call.tensors[0].asinh().erf()));
    }
  }
  // Each once: an artifact of the same numerics is found again.
  EXPECT_EQ(
      seen(),
      (std::vector<Numerics>{
          Numerics::kAccurate, Numerics::kEager, Numerics::kFast}));
  EXPECT_EQ(site.counters().admissions, 4);
  EXPECT_EQ(site.counters().eager_total(), 0);
}

TEST(CallSite, AnUnknownBackwardNeedsCodeThatCanRunAgain) {
  CallSite site("site", SiteOptions(), [](Watch&) {});
  const auto code = [](const std::vector<at::Tensor>& tensors) {
    Result result;
    result.tensors = {tensors[0].sin()};
    return result;
  };
  const auto make_rerun = []() -> Rerun { return {}; };
  const auto step = [&](bool dense) {
    Call call;
    call.tensors = {torch::rand({3}).requires_grad_()};
    const auto y = site.call(call, code, make_rerun).tensors.at(0);
    // Not expanded, as that of a sum.
    dense ? y.backward(torch::ones({3})) : y.sum().backward();
  };
  for (int i = 0; i < 3; ++i) {
    step(/*dense=*/false);
  }
  std::string text = "no error";
  try {
    step(/*dense=*/true);
  } catch (const temper::Error& error) {
    text = error.what_without_backtrace();
  }
  EXPECT_EQ(
      text,
      "temper: a backward came that 'site' does not know, and its code can't "
      "be run again; call backward the same way every time, or decompile()");
  // It is looked for all the same.
  step(/*dense=*/true);
  step(/*dense=*/true);
  EXPECT_EQ(site.counters().traces, 2);
  EXPECT_EQ(site.counters().program_backwards, 3);
  EXPECT_EQ(site.counters().eager_total(), 1);
}

TEST(Numerics, HaveNames) {
  for (const auto name : codegen::kNumericsNames) {
    ASSERT_TRUE(codegen::numerics_of(name));
    EXPECT_EQ(codegen::name_of(*codegen::numerics_of(name)), name);
  }
  EXPECT_EQ(codegen::numerics_of("accurate"), Numerics::kAccurate);
  EXPECT_FALSE(codegen::numerics_of("Accurate"));
  EXPECT_FALSE(codegen::numerics_of(""));
}

} // namespace
} // namespace temper::dispatch
