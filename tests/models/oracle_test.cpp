// The oracle itself: each kind of difference is found, equal runs are equal.
#include "support/compare.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <limits>

namespace temper::testing {
namespace {

// What the two runs note differs as told by `run.compiled()`.
void expect_found(const std::function<void(Trial&)>& scenario) {
  EXPECT_NONFATAL_FAILURE(expect_same(scenario), "run again with");
}

TEST(Oracle, EqualRunsAreEqual) {
  expect_same([](Trial& run) {
    auto x = torch::randn({3, 4}).requires_grad_();
    x.exp().sum().backward();
    run.note("x", x);
    run.note_grad("x", x);
    run.note("nan", torch::full({2}, std::nan("")));
    run.note("parts", x.detach().chunk(2));
    run.note("nothing", torch::Tensor());
    run.note("pair", std::make_tuple(x.detach(), x.detach().t()));
    run.note_generator();
    run.attempt("mismatch", [&] { torch::mm(x, x); });
  });
}

TEST(Oracle, FindsOneBit) {
  expect_found([](Trial& run) {
    auto x = torch::ones({2, 3});
    x[1][2] = run.compiled() ? std::nextafter(1.0f, 2.0f) : 1.0f;
    run.note("x", x);
  });
}

TEST(Oracle, FindsNegativeZero) {
  expect_found([](Trial& run) {
    run.note("x", torch::full({1}, run.compiled() ? -0.0 : 0.0));
  });
}

TEST(Oracle, FindsNanWhereThereIsNone) {
  expect_found([](Trial& run) {
    run.note("x", torch::full({1}, run.compiled() ? std::nan("") : 0.0));
  });
}

TEST(Oracle, FindsStridesDtypeAndSize) {
  expect_found([](Trial& run) {
    auto x = torch::zeros({2, 2});
    run.note("x", run.compiled() ? x.t() : x);
  });
  expect_found([](Trial& run) {
    run.note("x", torch::zeros(2, run.compiled() ? torch::kInt : torch::kLong));
  });
  expect_found([](Trial& run) {
    run.note("x", torch::zeros({run.compiled() ? 2 : 3}));
  });
}

TEST(Oracle, FindsRequiresGradAndLeaf) {
  expect_found([](Trial& run) {
    run.note("x", torch::zeros(2).requires_grad_(run.compiled()));
  });
  expect_found([](Trial& run) {
    auto x = torch::zeros(2).requires_grad_();
    run.note("x", run.compiled() ? x * 1 : x);
  });
}

TEST(Oracle, FindsUndefinedGradients) {
  expect_found([](Trial& run) {
    auto x = torch::zeros(2).requires_grad_();
    if (run.compiled()) {
      x.mutable_grad() = torch::zeros(2);
    }
    run.note_grad("x", x);
  });
}

TEST(Oracle, FindsSharedMemory) {
  expect_found([](Trial& run) {
    auto x = torch::zeros({2, 2});
    run.note("x", x);
    run.note("row", run.compiled() ? x[0].clone() : x[0]);
  });
  expect_found([](Trial& run) {
    auto x = torch::zeros({2, 2});
    run.note("x", x);
    run.note("same", run.compiled() ? x.view_as(x) : x);
  });
}

TEST(Oracle, FindsTheGenerator) {
  expect_found([](Trial& run) {
    torch::rand({run.compiled() ? 2 : 1});
    run.note_generator();
  });
}

TEST(Oracle, FindsExceptions) {
  expect_found([](Trial& run) {
    run.attempt("a", [&] { TORCH_CHECK(run.compiled(), "no"); });
  });
  expect_found([](Trial& run) {
    run.attempt("a", [&] { TORCH_CHECK(false, run.compiled() ? 1 : 2); });
  });
  expect_found([](Trial& run) {
    run.attempt("a", [&] {
      TORCH_CHECK_INDEX(run.compiled(), "no");
      TORCH_CHECK_VALUE(false, "no");
    });
  });
}

TEST(Oracle, FindsWhatWasNotSeen) {
  expect_found([](Trial& run) {
    run.note("a", int64_t{1});
    if (run.compiled()) {
      run.note("b", int64_t{2});
    }
  });
}

TEST(Oracle, NamesThePlace) {
  Transcript eager, compiled;
  eager.add("y", torch::tensor({1.0, 2.0, 3.0, 4.0}).view({2, 2}));
  compiled.add("y", torch::tensor({1.0, 2.0, 5.0, 4.0}).view({2, 2}));
  const auto text = difference(
      eager.observations()[0], compiled.observations()[0], Tolerance());
  ASSERT_TRUE(text);
  EXPECT_EQ(
      *text,
      "'y': 1 of 4 values differ, first at [1, 0]:\n"
      "  eager    3 (0x1.8p+1)\n  compiled 5 (0x1.4p+2)");
}

TEST(Oracle, ToleranceNeedsAReason) {
  const auto close = [](Trial& run) {
    run.note("x", torch::full({1}, run.compiled() ? 1.0 : 1.0001));
  };
  const Settings reasoned{{1e-3, 0}, "a test of tolerances"};
  expect_same(close, reasoned);
  const Settings unreasoned{{1e-3, 0}, ""};
  EXPECT_NONFATAL_FAILURE(
      expect_same(close, unreasoned), "a tolerance needs its reason");
}

TEST(Oracle, CountersAreSubtracted) {
  Counters before, after;
  before.calls = 2;
  before.eager_calls = {{"a", 1}};
  after.calls = 5;
  after.eager_calls = {{"a", 1}, {"b", 2}};
  const auto delta = subtract(after, before);
  EXPECT_EQ(delta.calls, 3);
  EXPECT_EQ(delta.eager_calls, (std::map<std::string, int64_t>{{"b", 2}}));
  EXPECT_EQ(add(before, delta).eager_calls, after.eager_calls);
}

TEST(Oracle, ReasonsOfEagerCalls) {
  Counters none;
  EXPECT_TRUE(counts_nothing(none));
  EXPECT_FALSE(because(none, {}));
  Counters some;
  some.eager_calls = {
      {"data dependence: aten::nonzero", 1}, {"fields of 'Net' change", 2}};
  EXPECT_FALSE(counts_nothing(some));
  EXPECT_TRUE(because(some, {"aten::nonzero", "'Net'"}));
  EXPECT_FALSE(because(some, {"aten::nonzero"})); // Not all are told.
  EXPECT_FALSE(because(some, {"aten::nonzero", "'Net'", "aten::item"}));
  EXPECT_EQ(eager_for(some, "'Net'"), 2);
  EXPECT_EQ(eager_for(some, "e"), 3);
  EXPECT_EQ(eager_for(some, "aten::item"), 0);
  if (!disabled()) {
    EXPECT_COUNTERS(
        some, eager == 3 && reasons.at("data dependence: aten::nonzero") == 1);
  }
  Tally tally;
  tally.explain = "signature 0: admitted";
  EXPECT_TRUE(explains(tally, "admitted"));
  EXPECT_FALSE(explains(tally, "eager"));
}

} // namespace
} // namespace temper::testing
