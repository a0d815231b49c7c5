// Neighbours of B_reruns: backwards that can't be served. The error says of
// which call, why, and what to do.
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace autograd = torch::autograd;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const temper::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

Tensor leaf() {
  return torch::randn({3}).requires_grad_();
}

// `sum()` gives an expanded gradient. One that is dense is of another kind.
void expanded_backward(const Tensor& y) {
  y.sum().backward();
}
void dense_backward(const Tensor& y) {
  y.backward(torch::ones(y.sizes()));
}

struct GainedImpl : temper::Module<GainedImpl> {
  double gain = 2;
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x * gain;
  }
};
TEMPER_MODULE(Gained);

TEST(CasesB, Errors_StateChangedBeforeAnUnknownBackward) {
  if (disabled()) {
    return;
  }
  Gained net;
  net->compile();
  for (int i = 0; i < 3; ++i) {
    expanded_backward(net(leaf()));
  }
  auto x = leaf();
  const auto y = net(x);
  net->gain = 5;
  const auto error = error_of([&] { dense_backward(y); });
  EXPECT_EQ(
      error.find("temper: 'Gained' changed between a call and a backward that "
                 "the compiled call does not know: 'GainedImpl': field at "
                 "bytes "),
      0U)
      << error;
  EXPECT_TRUE(
      error.ends_with(" (as a double 5). Run the backward before changing it."))
      << error;
  EXPECT_FALSE(x.grad().defined());
  // Nothing is lost: as it was, the code can run.
  net->gain = 2;
  dense_backward(y);
  EXPECT_TRUE(x.grad().equal(torch::full({3}, 2.0)));
  // A backward that is known reads what it saved, as in eager mode.
  auto other = leaf();
  const auto known = net(other); // Traced: a dense one is looked for.
  dense_backward(known);
  other = leaf();
  const auto z = net(other);
  net->gain = 5;
  dense_backward(z);
  EXPECT_TRUE(other.grad().equal(torch::full({3}, 2.0)));
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
  EXPECT_COUNTERS(
      temper::counters_of(net),
      traces == 2 && program_calls == 4 && program_backwards == 3);
}

struct RewriterImpl : temper::Module<RewriterImpl> {
  void reset() override {}
  Tensor forward(Tensor x) {
    x.mul_(3);
    return x.sin();
  }
};
TEMPER_MODULE(Rewriter);

TEST(CasesB, Errors_UnknownBackwardWhereAnArgumentGetsAnotherHistory) {
  if (disabled()) {
    return;
  }
  Rewriter net;
  net->compile();
  auto w = leaf();
  for (int i = 0; i < 3; ++i) {
    expanded_backward(net(w * 2));
  }
  auto y = net(w * 2);
  EXPECT_EQ(
      error_of([&] { dense_backward(y); }),
      "temper: a backward came that 'Rewriter' does not know, and its code "
      "can't be run again since it gives 'argument 0' another history; call "
      "backward the same way every time, or decompile()");
  // It is looked for, as others are.
  for (int i = 0; i < 3; ++i) {
    w = leaf();
    y = net(w * 2);
    dense_backward(y);
    EXPECT_TRUE(w.grad().equal(((w * 2) * 3).cos().detach() * 3 * 2));
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(
      temper::counters_of(net),
      traces == 2 && program_calls == 5 && program_backwards == 4);
}

TORCH_LIBRARY(temper_errors, library)
{ library.def("positive(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(temper_errors, CPU, library) {
  library.impl(
      "positive", [](const Tensor& x) { return x.masked_select(x > 0); });
}

/// Multiplies its gradient by the number of positive elements, in a backward
/// whose sizes nothing tells.
struct TimesPositive : autograd::Function<TimesPositive> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext* context,
      autograd::variable_list gradients) {
    static const auto positive =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("temper_errors::positive", "")
            .typed<Tensor(const Tensor&)>();
    const auto x = context->get_saved_variables()[0];
    return {gradients[0] * torch::ones_like(positive.call(x)).sum()};
  }
};

constexpr const char* kOtherSizes =
    "temper_errors::positive returns other sizes from call to call";

/// Its second result is computed from its first, and from what both use.
struct UnderwayImpl : temper::Module<UnderwayImpl> {
  void reset() override {}
  std::tuple<Tensor, Tensor> forward(const Tensor& x) {
    auto h = TimesPositive::apply(x);
    auto inner = h * h;
    return {inner, inner.tanh() + h};
  }
};
TEMPER_MODULE(Underway);

TEST(CasesB, Errors_OtherSizesWhileGradientsAreUnderway) {
  if (disabled()) {
    return;
  }
  Underway net;
  net->compile();
  const auto step = [&](float sign) {
    auto x = torch::full({3}, sign).requires_grad_();
    std::get<1>(net(x)).backward(torch::ones({3}));
    return x.grad();
  };
  for (int i = 0; i < 4; ++i) {
    step(1);
  }
  EXPECT_EQ(
      error_of([&] { step(-1); }),
      std::string("temper: the backward of 'Underway' can't go on: ") +
          kOtherSizes +
          ", and parts of its gradients are underway from results that were "
          "computed from others; call it again, which will be eager");
  // It is.
  EXPECT_TRUE(step(-1).equal(torch::zeros({3})));
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons == Reasons{{kOtherSizes, 2}} && traces == 2 &&
          program_calls == 3 && program_backwards == 3);
}

// Decides what is computed by what guards don't see.
bool uses_both = false;

struct ShiftyImpl : temper::Module<ShiftyImpl> {
  void reset() override {}
  std::tuple<Tensor, Tensor> forward(const Tensor& x, const Tensor& w) {
    return {TimesPositive::apply(uses_both ? x * w : x * 2), w.sin()};
  }
};
TEMPER_MODULE(Shifty);

// The edges that get nothing are gone when the code is to run again.
TEST(CasesB, Errors_OtherCodeInTheMiddleOfABackward) {
  if (disabled()) {
    return;
  }
  Shifty net;
  net->compile();
  for (int i = 0; i < 5; ++i) {
    auto x = torch::full({3}, i < 4 ? 1.F : -1.F).requires_grad_();
    auto w = torch::full({3}, 2.F).requires_grad_();
    uses_both = false;
    const auto y = std::get<0>(net(x, w));
    uses_both = i == 4;
    EXPECT_EQ(
        error_of([&] { y.backward(torch::ones({3})); }),
        i < 4 ? "no error"
              : "temper: a backward of 'Shifty' gives a gradient where it gave "
                "none before, and it has begun as before; run it without "
                "compile()");
    EXPECT_EQ(x.grad().defined(), i < 4);
    EXPECT_FALSE(w.grad().defined());
  }
  uses_both = false;
  EXPECT_COUNTERS(
      temper::counters_of(net),
      reasons == Reasons{{kOtherSizes, 1}} && traces == 2 &&
          program_calls == 3 && program_backwards == 3);
}

// Where only some of the inputs are asked for, what the code gives besides is
// nobody's.
TEST(CasesB, Errors_OtherSizesInABackwardForSomeInputs) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor w) {
      return (TimesPositive::apply(x * w) * w).sum();
    });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::full({3}, i < 5 ? 1.F : -1.F).requires_grad_();
      auto w = torch::full({3}, 2.F).requires_grad_();
      auto y = f(x, w);
      run.attempt("backward", [&] {
        run.note("x alone", autograd::grad({y}, {x})[0]);
      });
    }
  });
  EXPECT_COUNTERS(report.total, reasons == Reasons{{kOtherSizes, 3}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 4);
}

} // namespace
} // namespace temper::testing
