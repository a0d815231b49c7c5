// Case B11 further: regions and models in half precision.
#include <gtest/gtest.h>

#include "autocast.h"
#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;

TEST(CasesB, B11_AutocastToHalf) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 18; ++i) {
      if (i == 12) {
        run.steady();
      }
      net->zero_grad();
      Tensor y;
      {
        const Autocast autocast(i % 2 == 0 ? at::kHalf : at::kBFloat16);
        y = net(x);
        run.note("y", y);
        if (i % 3 == 0) {
          y.pow(2).sum().backward();
        }
      }
      if (i % 3 != 0) {
        y.pow(2).sum().backward();
      }
      EXPECT_EQ(net->first->weight.grad().scalar_type(), torch::kFloat);
      run.note_module("net", *net);
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager <= 2 && because("a backward of a kind not seen before"));
  EXPECT_COUNTERS(
      report.steady,
      eager == 0 && program_calls == calls && program_backwards == 6);
}

TEST(CasesB, B11_AutocastOfAModelInHalfPrecision) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto report = expect_same([dtype](Trial& run) {
      TwoLayers net;
      run.compile(net);
      net->to(dtype);
      for (int i = 0; i < 8; ++i) {
        if (i == 4) {
          run.steady();
        }
        net->zero_grad();
        auto x = torch::randn({3, 4}).requires_grad_();
        Tensor y;
        {
          const Autocast autocast;
          y = net(x);
        }
        run.note("y", y);
        y.pow(2).sum().backward();
        EXPECT_EQ(net->first->weight.grad().scalar_type(), dtype);
        run.note_module("net", *net);
        run.note_grad("x", x);
      }
    });
    EXPECT_COUNTERS(report.steady, eager == 0 && program_backwards == 4);
  }
}

} // namespace
} // namespace temper::testing
