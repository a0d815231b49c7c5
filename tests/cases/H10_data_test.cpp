// Case H10: what depends on data, and what only looks like it.
#include <gtest/gtest.h>

#include <string>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using torch::indexing::Slice;
namespace nn = torch::nn;

// Calls `code` with values and with indices into four rows, and goes backward.
template <class Code>
Report index_with(const Code& code) {
  return expect_same([&](Trial& run) {
    auto f = run.compile_function(code);
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({4, 4}).requires_grad_();
      auto y = f(x, torch::randint(0, 4, {3}, torch::kLong));
      run.note("y", y);
      y.pow(2).sum().backward();
      run.note_grad("x", x);
    }
  });
}

void expect_compiled(const Report& report) {
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 1);
  EXPECT_COUNTERS(report.total, program_calls == 5 && program_backwards == 5);
}

TEST(CasesH, H10_IntegersAsIndices) {
  expect_compiled(
      index_with([](Tensor x, Tensor at) { return x.index({at}) * 2; }));
  expect_compiled(index_with([](Tensor x, Tensor at) {
    return x.index({Slice(), at.to(torch::kInt)}) + x.index({at, at}).sum();
  }));
  expect_compiled(index_with([](Tensor x, Tensor at) {
    return torch::sin(x).index({at - 4, Slice(0, 2)});
  }));
  expect_compiled(index_with([](Tensor x, Tensor at) {
    auto y = x * 1;
    y.index_put_({at}, x.index({at.flip(0)}));
    return y;
  }));
}

TEST(CasesH, H10_BatchesByAPermutation) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    const auto data = torch::randn({12, 4});
    auto step = run.compile_function(
        [&](Tensor order) {
          auto batch = data.index({order});
          return net->forward(batch).pow(2).mean();
        },
        net,
        data);
    for (int i = 0; i < 6; ++i) {
      auto order = torch::randperm(12).slice(0, 0, 5);
      auto loss = step(order);
      run.note("loss", loss);
      loss.backward();
      run.note_module("net", *net);
    }
  });
  expect_compiled(report);
}

TEST(CasesH, H10_MasksAsIndices) {
  for (const auto dtype : {torch::kBool, torch::kByte}) {
    const auto report = expect_same([&](Trial& run) {
      auto f = run.compile_function(
          [](Tensor x, Tensor at) { return x.index({at}) * 2; });
      for (int i = 0; i < 8; ++i) { // The same code with integers in turns.
        auto x = torch::randn({4});
        auto mask = (torch::arange(4) < i % 4).to(dtype);
        run.note("y", f(x, i % 2 == 0 ? torch::arange(4) : mask));
      }
    });
    EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 3);
    EXPECT_COUNTERS(
        report.total,
        reasons == Reasons{{"data dependence: aten::index.Tensor", 3}});
  }
}

TEST(CasesH, H10_RepeatsWhoseSumIsTold) {
  const auto repeat = [](bool told) {
    return expect_same([&](Trial& run) {
      auto f = run.compile_function([told](Tensor x, Tensor repeats) {
        return torch::repeat_interleave(
                   x,
                   repeats,
                   0,
                   told ? std::optional<int64_t>(6) : std::nullopt) +
            1;
      });
      for (int i = 0; i < 6; ++i) {
        auto repeats =
            i % 2 == 0 ? torch::tensor({1, 2, 3}) : torch::tensor({0, 4, 2});
        run.note("y", f(torch::randn({3}), repeats));
      }
    });
  };
  EXPECT_COUNTERS(
      repeat(true).total, eager == 0 && traces == 1 && program_calls == 5);
  EXPECT_COUNTERS(
      repeat(false).total,
      reasons ==
              Reasons{{"data dependence: aten::repeat_interleave.Tensor", 5}} &&
          traces == 1);
}

TEST(CasesH, H10_PackedSequences) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor lengths) {
      auto packed = at::_pack_padded_sequence(x, lengths, false);
      return std::get<0>(packed).sum() /
          static_cast<double>(std::get<0>(packed).size(0));
    });
    for (int i = 0; i < 6; ++i) {
      auto lengths = i % 2 == 0 ? torch::tensor({3, 3}) : torch::tensor({3, 1});
      run.note("y", f(torch::ones({3, 2, 2}), lengths));
    }
  });
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"data dependence: aten::_pack_padded_sequence", 5}});
}

} // namespace
} // namespace temper::testing
