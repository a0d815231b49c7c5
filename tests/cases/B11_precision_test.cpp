// Cases B11, B14 and B16 further: regions and models in half precision,
// parameters that modules share, functions that write their argument.
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
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  // Two dtypes, each with two kinds of backward.
  EXPECT_COUNTERS(report.total, traces == 6 && program_calls == 12);
  EXPECT_COUNTERS(
      report.steady,
      eager == 0 && program_calls == 6 && program_backwards == 6);
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
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 1 && program_calls == 7);
    EXPECT_COUNTERS(
        report.steady, program_calls == 4 && program_backwards == 4);
  }
}

/// A layer whose weight another may use.
struct ProjectionImpl : temper::Module<ProjectionImpl> {
  Tensor weight;
  ProjectionImpl() {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::randn({4, 4}));
  }
  void share(const ProjectionImpl& other) {
    weight = other.weight;
    parameters_["weight"] = weight;
  }
  Tensor forward(Tensor x) {
    return x.matmul(weight).tanh();
  }
};
TEMPER_MODULE(Projection);

/// Two layers with one weight.
struct TwinsImpl : temper::Module<TwinsImpl> {
  Projection first{nullptr}, second{nullptr};
  TwinsImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", Projection());
    second = register_module("second", Projection());
    second->share(*first);
  }
  Tensor forward(Tensor x) {
    return second(first(x) + 1);
  }
};
TEMPER_MODULE(Twins);

TEST(CasesB, B14_TwoModulesShareAParameter) {
  const auto report = expect_same([](Trial& run) {
    Projection first, second;
    second->share(*first);
    run.compile(first);
    run.compile(second);
    const auto train = [&](Projection& a, Projection& b) {
      torch::optim::SGD steps(a->parameters(), 0.1);
      const auto dtype = a->weight.scalar_type();
      for (int i = 0; i < 4; ++i) {
        a->zero_grad();
        b->zero_grad();
        auto y = b(a(torch::randn({3, 4}, dtype)) + 1);
        run.note("y", y);
        y.pow(2).mean().backward();
        steps.step();
        run.note_module("a", *a);
        run.note_module("b", *b);
      }
    };
    train(first, second);
    first->to(torch::kDouble);
    train(first, second);
    Projection copy(std::dynamic_pointer_cast<ProjectionImpl>(second->clone()));
    train(first, copy);
    copy->share(*first);
    train(copy, first);
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 4);
  EXPECT_COUNTERS(report.total, traces == 7 && program_calls == 25);
  EXPECT_COUNTERS(report.total, program_backwards == 25);
}

TEST(CasesB, B14_ChildrenShareAParameter) {
  const auto report = expect_same([](Trial& run) {
    Twins net;
    run.compile(net);
    const auto train = [&](Twins& model) {
      torch::optim::SGD steps(model->parameters(), 0.1);
      const auto dtype = model->first->weight.scalar_type();
      for (int i = 0; i < 4; ++i) {
        model->zero_grad();
        auto y = model(torch::randn({3, 4}, dtype));
        run.note("y", y);
        y.pow(2).mean().backward();
        steps.step();
        run.note_module("model", *model);
      }
    };
    train(net);
    net->to(torch::kDouble);
    train(net);
    // LibTorch clones each child for itself.
    Twins copy(std::dynamic_pointer_cast<TwinsImpl>(net->clone()));
    run.note(
        "tied", int64_t{copy->first->weight.is_same(copy->second->weight)});
    train(copy);
    copy->second->share(*copy->first);
    train(copy);
    train(net);
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 3);
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 16);
  EXPECT_COUNTERS(report.total, program_backwards == 16);
}

/// Doubles its argument in place.
struct Doubled : torch::autograd::Function<Doubled> {
  static Tensor forward(torch::autograd::AutogradContext* context, Tensor x) {
    {
      const torch::NoGradGuard no_grad;
      x.mul_(2);
    }
    context->mark_dirty({x});
    return x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*,
      const torch::autograd::variable_list& grads) {
    return {grads[0] * 2};
  }
};

// Counts up the buffer's version twice for one write.
TEST(CasesB, B16_MarkDirtyOfABuffer) {
  for (const bool grad_mode : {true, false}) {
    const auto report = expect_same([grad_mode](Trial& run) {
      auto buffer = torch::ones({4});
      auto f = run.compile_function(
          [&buffer](Tensor x) { return Doubled::apply(buffer) * x; }, buffer);
      const torch::AutoGradMode mode(grad_mode);
      for (int i = 0; i < 6; ++i) {
        run.note("y", f(torch::randn({4})));
        run.note("buffer", buffer);
        run.note("version", int64_t{buffer._version()});
      }
    });
    EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 5);
  }
}

TEST(CasesB, B16_MarkDirty) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto h = x.sin();
      auto y = Doubled::apply(h);
      return std::make_tuple(h, y, y.exp());
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({4}).requires_grad_();
      auto all = f(x);
      run.note("all", all);
      (std::get<0>(all) + std::get<2>(all)).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 6);
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

TEST(CasesB, B16_MarkDirtyOfAnArgument) {
  const auto report = expect_same([](Trial& run) {
    auto f =
        run.compile_function([](Tensor x) { return Doubled::apply(x).exp(); });
    for (int i = 0; i < 8; ++i) {
      auto leaf = torch::randn({4}).requires_grad_();
      auto x = leaf * 1;
      auto y = f(x);
      run.note("x", x);
      run.note("y", y);
      (y.sum() + x.sum()).backward();
      run.note_grad("leaf", leaf);
      // Without a history of its own.
      auto plain = torch::randn({4});
      run.note("of plain", f(plain));
      run.note("plain", plain);
      run.attempt("leaf", [&] { f(leaf); });
    }
  });
  // Autograd refuses the leaf.
  EXPECT_COUNTERS(
      report.total, reasons == Reasons{{"the code threw in each trace", 5}});
  EXPECT_COUNTERS(report.total, traces == 6);
  EXPECT_COUNTERS(report.total, program_calls == 13 && program_backwards == 6);
}

} // namespace
} // namespace temper::testing
