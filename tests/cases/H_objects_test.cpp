// Neighbours of H1, H3, H7 and H11: what code does to tensor objects, threads
// and memory besides running operators, in every call or only in the one that
// is shadowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <thread>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace autograd = torch::autograd;

// Which call of a scenario it is: the code can see it, guards can't.
int64_t call_number = 0;

// Calls `f` six times with a leaf, a tensor with a history, a view with one and
// a plain one, and uses the argument afterwards. The second call of each kind
// is the one that is shadowed.
template <class F>
Report expect_objects(F f, bool views = true) {
  return expect_same([f, views](Trial& run) {
    auto compiled = run.compile_function(f);
    for (int64_t i = 0; i < 6; ++i) {
      call_number = i;
      auto w = torch::randn({3, 2}).requires_grad_();
      auto leaf = torch::randn({3, 2}).requires_grad_();
      leaf.mutable_grad() = torch::ones({3, 2});
      auto base = w * 3;
      std::vector<Tensor> kinds{leaf, w * 2, torch::randn({3, 2})};
      if (views) {
        kinds.push_back(base.view({3, 2}));
      }
      for (size_t k = 0; k < kinds.size(); ++k) {
        auto& x = kinds[k];
        const auto name = "kind " + std::to_string(k);
        run.attempt(name, [&] {
          auto y = compiled(x);
          run.note(name + " y", y);
          auto loss = y.sum();
          if (x.requires_grad()) {
            loss = loss + (x * x).sum();
          }
          if (loss.requires_grad()) {
            loss.backward({}, /*retain_graph=*/true);
          }
        });
        run.note(name + " x", x);
        run.note(name + " version", static_cast<int64_t>(x._version()));
        run.note_grad(name + " x.grad", x.is_leaf() ? x : w);
        if (x.retains_grad()) {
          run.note(name + " retained", x.grad());
        }
      }
      run.note("base", base);
      run.note_grad("w", w);
    }
  });
}

bool is_second() {
  return call_number == 1;
}

TEST(CasesH, Objects_WrittenInTheShadowedCallOnly) {
  const auto report = expect_objects([](Tensor x) {
    auto y = x + 1;
    if (is_second() && !x.is_leaf()) {
      x.mul_(3);
    }
    return y * 2;
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"differs from call to call: aten::mul_.Scalar: the trace had "
               "aten::mul.Scalar",
               2}});
  EXPECT_COUNTERS(report.total, traces == 6 && admissions == 4);
  EXPECT_COUNTERS(report.total, program_calls == 16 && program_backwards == 11);
}

TEST(CasesH, Objects_WrittenUnderNoGradInTheShadowedCallOnly) {
  const auto report = expect_objects([](Tensor x) {
    auto y = x + 1;
    if (is_second()) {
      const torch::NoGradGuard no_grad;
      x.mul_(3);
    }
    return y * 2;
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"differs from call to call: aten::mul_.Scalar: the trace had "
               "aten::mul.Scalar",
               4}});
  EXPECT_COUNTERS(report.total, traces == 8 && admissions == 4);
  EXPECT_COUNTERS(report.total, program_calls == 12 && program_backwards == 9);
}

TEST(CasesH, Objects_SeenInANewWayInTheShadowedCallOnly) {
  const auto report = expect_objects([](Tensor x) {
    auto y = x + 1;
    if (is_second() && !x.is_leaf()) {
      x.unsqueeze_(0);
    }
    return y * 2;
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"differs from call to call: aten::unsqueeze_: the trace had "
               "aten::mul.Scalar",
               2}});
  EXPECT_COUNTERS(report.total, traces == 6 && admissions == 4);
  EXPECT_COUNTERS(report.total, program_calls == 16 && program_backwards == 11);
}

TEST(CasesH, Objects_HistoryChangedWithoutAnOperator) {
  const auto detach = expect_objects(
      [](Tensor x) {
        if (is_second()) {
          x.detach_();
        }
        return x * 2;
      },
      /*views=*/false);
  EXPECT_COUNTERS(
      detach.total,
      reasons ==
          Reasons{
              {"differs from call to call: a result is another tensor", 2}});
  EXPECT_COUNTERS(detach.total, traces == 5 && admissions == 3);
  EXPECT_COUNTERS(detach.total, program_calls == 11 && program_backwards == 6);
  const auto require = expect_objects([](Tensor x) {
    auto y = x * 2;
    if (is_second() && x.is_leaf()) {
      x.requires_grad_();
    }
    return y;
  });
  EXPECT_COUNTERS(
      require.total,
      reasons ==
          Reasons{
              {"differs from call to call: the call changes the history of "
               "'argument 0'",
               1}});
  EXPECT_COUNTERS(require.total, traces == 5 && admissions == 4);
  EXPECT_COUNTERS(
      require.total, program_calls == 18 && program_backwards == 15);
}

TEST(CasesH, Objects_MemoryExchanged) {
  const auto once = expect_objects([](Tensor x) {
    auto y = x * 2;
    if (is_second()) {
      x.set_data(torch::zeros({3, 2}));
    }
    return y;
  });
  EXPECT_COUNTERS(
      once.total,
      reasons ==
          Reasons{
              {"differs from call to call: aten::zeros: the trace had ended",
               4}});
  EXPECT_COUNTERS(once.total, traces == 8 && admissions == 4);
  EXPECT_COUNTERS(once.total, program_calls == 12 && program_backwards == 9);
  const auto always = expect_objects([](Tensor x) {
    auto y = x * 2;
    x.set_data(torch::zeros({3, 2}));
    return y;
  });
  EXPECT_COUNTERS(
      always.total,
      reasons == Reasons{{"the call replaces the memory of 'argument 0'", 12}});
  EXPECT_COUNTERS(always.total, traces == 12 && admissions == 0);
  EXPECT_COUNTERS(always.total, program_calls == 0 && program_backwards == 0);
}

TEST(CasesH, Objects_GradientsReadAndReplaced) {
  const auto read = expect_objects([](Tensor x) {
    return x.is_leaf() && x.grad().defined() ? x * 4 : x * 2;
  });
  EXPECT_COUNTERS(read.total, eager == 0 && traces == 4);
  EXPECT_COUNTERS(read.total, program_calls == 20 && program_backwards == 15);
  const auto replaced = expect_objects([](Tensor x) {
    if (is_second() && x.is_leaf()) {
      x.mutable_grad() = torch::full({3, 2}, 7.0);
    }
    return x * 2;
  });
  EXPECT_COUNTERS(
      replaced.total,
      reasons ==
          Reasons{
              {"differs from call to call: aten::full: the trace had "
               "aten::mul.Scalar",
               2}});
  EXPECT_COUNTERS(replaced.total, traces == 6 && admissions == 4);
  EXPECT_COUNTERS(
      replaced.total, program_calls == 16 && program_backwards == 13);
}

TEST(CasesH, Objects_HooksOnArguments) {
  const auto doubled = [](Tensor gradient) { return gradient * 2; };
  const auto once = expect_objects([doubled](Tensor x) {
    if (is_second() && x.requires_grad()) {
      x.register_hook(doubled);
    }
    return x * 2;
  });
  EXPECT_COUNTERS(
      once.total,
      reasons ==
          Reasons{
              {"differs from call to call: the call adds a hook to "
               "'argument 0'",
               3}});
  EXPECT_COUNTERS(once.total, traces == 7 && admissions == 4);
  EXPECT_COUNTERS(once.total, program_calls == 14 && program_backwards == 9);
  const auto always = expect_objects([doubled](Tensor x) {
    if (x.requires_grad()) {
      x.register_hook(doubled);
    }
    return x * 2;
  });
  EXPECT_COUNTERS(
      always.total,
      reasons == Reasons{{"the call adds a hook to 'argument 0'", 9}});
  EXPECT_COUNTERS(always.total, traces == 10 && admissions == 1);
  EXPECT_COUNTERS(always.total, program_calls == 5 && program_backwards == 0);
  const auto retained = expect_objects([](Tensor x) {
    if (x.requires_grad()) {
      x.retain_grad();
    }
    return x * 2;
  });
  EXPECT_COUNTERS(
      retained.total,
      reasons == Reasons{{"the call calls retain_grad() on 'argument 0'", 6}});
  EXPECT_COUNTERS(retained.total, traces == 8 && admissions == 2);
  EXPECT_COUNTERS(
      retained.total, program_calls == 10 && program_backwards == 5);
}

TEST(CasesH, Objects_OfParametersAreTheCallsOwn) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    auto step = run.compile_function(
        [&net](Tensor x) {
          net->zero_grad(); // Resets gradients without an operator.
          return net->forward(x).pow(2).sum();
        },
        net);
    for (int i = 0; i < 8; ++i) {
      step(torch::randn({2, 4})).backward();
      run.note_module("net", *net);
    }
    auto hooked = run.compile_function(
        [&net](Tensor x) {
          net->first->bias.register_hook([](Tensor g) { return g * 2; });
          return net->forward(x).pow(2).sum();
        },
        net);
    for (int i = 0; i < 4; ++i) {
      hooked(torch::randn({2, 4})).backward();
      run.note_module("net", *net);
    }
    auto moved = run.compile_function(
        [&net](Tensor x) {
          auto y = net->forward(x);
          net->first->bias.set_data(net->first->bias * 0.5);
          return y;
        },
        net);
    for (int i = 0; i < 4; ++i) {
      run.note("y", moved(torch::randn({2, 4})));
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.total, traces == 8 && program_calls == 0);
  EXPECT_COUNTERS(
      report.total,
      eager_for("the call adds a hook to 'watched 0.first.bias'") == 1 &&
          eager_for("the call replaces the memory of 'watched 0.first.bias'") ==
              1);
  // In its shadow run `step` finds gradients to detach, and in its next trace
  // ones that are none of its state.
  EXPECT_COUNTERS(
      report.total,
      eager_for("differs from call to call: aten::detach: the trace had "
                "aten::t") == 1 &&
          eager_for("aten::detach uses a tensor of unknown origin, of sizes "
                    "[5, 4]: ") == 5);
  EXPECT_COUNTERS(report.total, eager == 8);
}

std::vector<Tensor> replay;

TEST(CasesH, Objects_KeptArguments) {
  const auto report = expect_same([](Trial& run) {
    replay.clear();
    auto f = run.compile_function([](Tensor x) {
      replay.push_back(x);
      replay.push_back(x.view({-1}));
      replay.push_back(x.data());
      replay.push_back((x + 1).data());
      return x * 2;
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({2, 3})));
    }
    for (const auto& kept : replay) {
      run.note("kept", kept + 1);
    }
    replay.clear();
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"a tensor made by aten::add.Scalar is kept after the call "
               "without being a result",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, Objects_VersionsOfBuffersSeenInANewWay) {
  const auto report = expect_same([](Trial& run) {
    auto buffer = torch::randn({2, 3});
    auto f = run.compile_function(
        [&buffer](Tensor x) {
          auto seen = buffer.view({3, 2});
          seen.transpose_(0, 1);
          buffer.add_(1).mul_(2);
          buffer.data().add_(1);
          return x + seen;
        },
        buffer);
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({2, 3})));
      run.note("version", static_cast<int64_t>(buffer._version()));
      run.note("buffer", buffer);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
}

// Backwards of custom functions have no shadow run.
struct ByPointer : autograd::Function<ByPointer> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list gradients) {
    auto in = gradients[0].contiguous();
    auto out = torch::empty_like(in);
    for (int64_t i = 0; i < in.numel(); ++i) {
      out.data_ptr<float>()[i] = in.const_data_ptr<float>()[i] * 2;
    }
    return {out};
  }
};
struct ByNumber : autograd::Function<ByNumber> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext* context,
      autograd::variable_list gradients) {
    // Read-only access: no hook of LibTorch's tells of it.
    const auto saved = context->get_saved_variables()[0];
    return {gradients[0] * saved.const_data_ptr<float>()[0]};
  }
};
struct ByCounter : autograd::Function<ByCounter> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list gradients) {
    return {gradients[0] * static_cast<double>(++calls)};
  }
  static int64_t calls;
};
int64_t ByCounter::calls = 0;

constexpr const char* kRawAccess =
    "the data of a tensor is read outside of tensor ops (data_ptr, an "
    "accessor, an Eigen map)";
constexpr const char* kRawAccessByAThread =
    "the data of a tensor is read outside of tensor ops (data_ptr, an "
    "accessor, an Eigen map), by a thread";
constexpr const char* kUnlikeCustom =
    "the backward of a custom autograd function differs from call to call";

// The first `first_traces` of eight calls tell `reason`.
template <class Function>
void expect_eager_backward(const std::string& reason, int64_t first_traces) {
  const auto report = expect_same([](Trial& run) {
    ByCounter::calls = 0;
    auto f = run.compile_function(
        [](Tensor x) { return Function::apply(x * 3).exp(); });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({4}).requires_grad_();
      (f(x) * torch::randn({4})).sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, reasons == Reasons{{reason, 8 - first_traces}});
  EXPECT_COUNTERS(report.total, traces == first_traces);
  EXPECT_COUNTERS(report.total, program_calls == 0 && program_backwards == 0);
}

TEST(CasesH, Objects_OneRetainedBackwardProvesNothing) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor x) { return ByNumber::apply(x * 3).exp(); });
    for (int i = 0; i < 8; ++i) {
      auto x = torch::randn({4}).requires_grad_();
      auto loss = f(x).sum();
      loss.backward({}, /*retain_graph=*/true);
      loss.backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, reasons == Reasons{{kUnlikeCustom, 4}});
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 0);
}

struct Scaled : autograd::Function<Scaled> {
  static Tensor forward(autograd::AutogradContext*, const Tensor& x) {
    return x * 2;
  }
  static autograd::variable_list backward(
      autograd::AutogradContext*,
      autograd::variable_list gradients) {
    return {gradients[0] * 5};
  }
};

TEST(CasesH, Objects_CustomBackwardsOfTwoKindsInTurn) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      return std::vector<Tensor>{Scaled::apply(x), Scaled::apply(x).sin()};
    });
    for (int i = 0; i < 16; ++i) {
      auto x = torch::randn({4}).requires_grad_();
      auto y = f(x);
      (i % 2 == 0 ? y[0].sum() : y[0].sum() + y[1].sum()).backward();
      run.note_grad("x", x);
    }
  });
  // Two traces of each kind, and one call between them that looks for it.
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 1}});
  EXPECT_COUNTERS(report.total, traces == 5 && program_calls == 11);
  EXPECT_COUNTERS(report.total, program_backwards == 10);
}

TEST(CasesH, Objects_CustomBackwardsThatReadData) {
  expect_eager_backward<ByPointer>(
      std::string(kRawAccess) + " (in its backward)", 1);
  expect_eager_backward<ByNumber>(kUnlikeCustom, 4);
  expect_eager_backward<ByCounter>(kUnlikeCustom, 4);
}

TEST(CasesH, Objects_MemoryReadInThreadsAndWhereNothingMayThrow) {
  const auto first = [](const Tensor& x) noexcept {
    return x.data_ptr<float>()[0];
  };
  const auto report = expect_same([first](Trial& run) {
    auto f = run.compile_function([first](Tensor x) {
      auto y = torch::zeros({8});
      auto z = x * 1;
#pragma omp parallel for
      for (int64_t i = 0; i < 8; ++i) {
        y.data_ptr<float>()[i] = z.data_ptr<float>()[i] * 2;
      }
      return y + first(z);
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({8})));
    }
  });
  // Which thread comes first decides whether the reason is final.
  EXPECT_COUNTERS(report.total, because(kRawAccess) && program_calls == 0);
}

TEST(CasesH, Objects_MemoryReadOrFilledByAThreadOnly) {
  const auto read = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto z = x * 1;
      float sum = 0;
      std::thread([&] { sum = z.data_ptr<float>()[0]; }).join();
      return z + sum;
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({8})));
    }
  });
  EXPECT_COUNTERS(read.total, reasons == Reasons{{kRawAccessByAThread, 2}});
  EXPECT_COUNTERS(read.total, traces == 3 && program_calls == 0);
  const auto filled = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      auto y = torch::empty({8});
      std::thread([&] { std::fill_n(y.data_ptr<float>(), 8, 2.0F); }).join();
      return std::vector<Tensor>{x * 2, y};
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({8})));
    }
  });
  EXPECT_COUNTERS(filled.total, reasons == Reasons{{kRawAccess, 4}});
  EXPECT_COUNTERS(filled.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, Objects_MemoryReadWhereExceptionsAreWrapped) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      try {
        return x * x.const_data_ptr<float>()[0];
      } catch (const std::exception& error) {
        throw std::runtime_error(std::string("layer 3: ") + error.what());
      }
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({3})));
    }
  });
  EXPECT_COUNTERS(report.total, reasons == Reasons{{kRawAccess, 4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, Objects_OperatorsOfAnotherThread) {
  const auto report = expect_same([](Trial& run) {
    auto buffer = torch::ones({3});
    auto f = run.compile_function(
        [&buffer](Tensor x) {
          std::async(std::launch::async, [&] { buffer.add_(1); }).get();
          return x * buffer;
        },
        buffer);
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::randn({3})));
    }
    run.note("buffer", buffer);
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"'watched 0[0]' is written in the call, but by no operator of it",
               3}});
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 0);
}

TEST(CasesH, Objects_OperatorsThatThrowAreCaughtByTheCode) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor a) {
      Tensor lower;
      try {
        lower = at::linalg_cholesky(torch::dropout(a, 0.5, true) + a);
      } catch (const c10::Error&) {
        lower = at::linalg_cholesky(a * a.t() + 9 * torch::eye(3));
      }
      return lower * 2;
    });
    for (int i = 0; i < 10; ++i) {
      // The sixth and the last are not positive definite.
      auto a = torch::eye(3) * (i == 5 || i == 9 ? -1 : 4);
      run.note("y", f(a));
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"an operator of its program threw", 2}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 7);
}

TEST(CasesH, Objects_AThrowingProgramCountsVersions) {
  const auto report = expect_same([](Trial& run) {
    auto weight = torch::randn({4, 3});
    auto f = run.compile_function(
        [&weight](Tensor index, Tensor z) {
          z.mul_(2);
          return torch::embedding(weight, index);
        },
        weight);
    for (int i = 0; i < 6; ++i) {
      auto z = torch::ones({3});
      run.attempt("call", [&] {
        run.note("y", f(torch::tensor({0, i < 4 ? 1 : 9}), z));
      });
      run.note("z", z);
      run.note("version", static_cast<int64_t>(z._version()));
    }
  });
  EXPECT_COUNTERS(report.total, calls == 6 && eager == 0 && traces == 1);
  EXPECT_COUNTERS(report.total, program_calls == 3); // Two threw.
}

TEST(CasesH, Objects_ThreadStateLeftChanged) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x) {
      torch::set_default_dtype(caffe2::TypeMeta::Make<double>());
      return x * torch::ones({2});
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::ones({2}, torch::kFloat)));
      torch::set_default_dtype(caffe2::TypeMeta::Make<float>());
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"the call changes the thread's state: default dtype was Float, now Double",
               2}});
  EXPECT_COUNTERS(report.total, traces == 3 && program_calls == 0);
}

TEST(CasesH, Objects_OneVariableTwiceByReference) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor& a, Tensor& b) {
      a = a + 1;
      b = b * 2;
      return a;
    });
    auto h = torch::ones({3});
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(h, h));
      run.note("h", h);
    }
    auto other = torch::ones({3});
    for (int i = 0; i < 5; ++i) {
      run.note("two", f(h, other));
      run.note("h", h);
      run.note("other", other);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{{"a variable that is taken by reference is given twice", 5}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 4);
}

struct StatefulImpl : temper::Module<StatefulImpl> {
  Tensor h = torch::zeros({3});
  void reset() override {}
  Tensor forward(const Tensor& x) {
    h = h + 1;
    return x * 2 + h; // `x` may be `h`.
  }
};
TEMPER_MODULE(Stateful);

TEST(CasesH, Objects_AFieldAsArgument) {
  const auto report = expect_same([](Trial& run) {
    Stateful net;
    run.compile(net);
    for (int i = 0; i < 5; ++i) {
      run.note("y", net(net->h));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 2 && traces == 3);
  EXPECT_COUNTERS(
      report.total,
      because(
          "the call changes watched state: 'StatefulImpl': field at bytes "));
}

// Rows of a buffer that the call writes as well are written by threads.
TEST(CasesH, Objects_BufferWrittenByTheCallAndByItsThreads) {
  const auto report = expect_same([](Trial& run) {
    auto buffer = torch::zeros({8, 3});
    auto f = run.compile_function(
        [&buffer](Tensor x) {
          buffer.add_(1);
          std::thread([&] { buffer[1].copy_(x[1] * 2); }).join();
          return buffer * 2;
        },
        buffer);
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::randn({8, 3})));
      run.note("buffer", buffer);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      program_calls == 0 && eager == 3 && traces == 3 &&
          because("'watched 0[0]' is written in the call, but by no operator "
                  "of it"));
}

} // namespace
} // namespace temper::testing
