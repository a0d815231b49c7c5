// Neighbours of H2, H7 and A16: operators that a user has registered, which
// temper knows by their schemas only.
#include <gtest/gtest.h>
#include <torch/library.h>

#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace autograd = torch::autograd;

int64_t kernel_runs = 0; // Of `counted`.

template <class F>
auto op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<F>();
}

Tensor call_cube(const Tensor& x) {
  static const auto cube = op<Tensor(const Tensor&)>("temper_cases::cube");
  return cube.call(x);
}

struct Cube : autograd::Function<Cube> {
  static Tensor forward(autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_cube(x);
  }
  static autograd::variable_list backward(
      autograd::AutogradContext* context,
      autograd::variable_list gradients) {
    const auto x = context->get_saved_variables()[0];
    return {gradients[0] * 3 * x * x};
  }
};

TORCH_LIBRARY(temper_cases, library)
{
  library.def("cube(Tensor x) -> Tensor");
  library.def("counted(Tensor x) -> Tensor");
  library.def("scale_(Tensor(a!) x, float by) -> Tensor(a!)");
  library.def("scale_and_shift_(Tensor(a!) x, float by) -> Tensor(a!)");
  library.def("threaded(Tensor x) -> Tensor");
  library.def("halves(Tensor(a) x) -> (Tensor(a), Tensor(a))");
  library.def("mark(Tensor(a) x) -> Tensor(a)");
  library.def("parts(Tensor x, int n) -> Tensor[]");
  library.def("both(Tensor x) -> (Tensor, int)");
  library.def("positive(Tensor x) -> Tensor");
  library.def(
      "tagged_positive(Tensor x) -> Tensor", {at::Tag::dynamic_output_shape});
  library.def("composite(Tensor x) -> Tensor", [](const Tensor& x) {
    return torch::sigmoid(x) * x;
  });
}

TORCH_LIBRARY_IMPL(temper_cases, CPU, library) {
  library.impl("cube", [](const Tensor& x) { return x * x * x; });
  library.impl("counted", [](const Tensor& x) {
    ++kernel_runs;
    // By pointer, as kernels do.
    auto result = torch::empty_like(x);
    const auto source = x.contiguous();
    const auto* from = source.const_data_ptr<float>();
    auto* to = result.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      to[i] = from[i] + 1;
    }
    return result;
  });
  library.impl(
      "scale_", [](Tensor& x, double by) -> Tensor& { return x.mul_(by); });
  library.impl("scale_and_shift_", [](Tensor& x, double by) -> Tensor& {
    return x.mul_(by).add_(by);
  });
  library.impl("threaded", [](const Tensor& x) {
    auto result = x.clone(at::MemoryFormat::Contiguous);
    std::thread([&] {
      for (int64_t i = 0; i < x.numel(); ++i) {
        result.data_ptr<float>()[i] += x.data_ptr<float>()[i];
      }
    }).join();
    return result;
  });
  library.impl("halves", [](const Tensor& x) {
    const auto half = x.size(0) / 2;
    return std::make_tuple(
        x.narrow(0, 0, half), x.narrow(0, half, x.size(0) - half));
  });
  library.impl("mark", [](const Tensor& x) {
    ++kernel_runs;
    return x;
  });
  library.impl("parts", [](const Tensor& x, int64_t n) {
    std::vector<Tensor> parts;
    for (int64_t i = 0; i < n; ++i) {
      parts.push_back(x + i);
    }
    return parts;
  });
  library.impl("both", [](const Tensor& x) {
    return std::make_tuple(x * 2, x.size(0));
  });
  const auto positive = [](const Tensor& x) { return x.masked_select(x > 0); };
  library.impl("positive", positive);
  library.impl("tagged_positive", positive);
}

TORCH_LIBRARY_IMPL(temper_cases, Autograd, library) {
  library.impl("cube", [](const Tensor& x) { return Cube::apply(x); });
}

TEST(CasesH, Operators_WithAndWithoutGradients) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor x) { return call_cube(x * 2).sum() + call_cube(x).mean(); });
    for (int i = 0; i < 8; ++i) {
      if (i == 4) {
        run.steady();
      }
      auto x = torch::randn({3, 2 + i % 2}).requires_grad_();
      auto y = f(x);
      y.backward();
      run.note("y", y);
      run.note_grad("x", x);
      const torch::NoGradGuard no_grad;
      run.note("without", f(torch::randn({4})));
    }
  });
  // Two sizes to train, each with a backward of user code to prove, and one
  // without.
  EXPECT_COUNTERS(
      report.steady, eager == 0 && traces == 0 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_calls == 11 && traces == 5);
}

TEST(CasesH, Operators_RunOnceACallWithTheirEffects) {
  const auto report = expect_same([](Trial& run) {
    static const auto counted =
        op<Tensor(const Tensor&)>("temper_cases::counted");
    auto f = run.compile_function([](Tensor x) {
      counted.call(x); // Nobody needs its result.
      return counted.call(x * 2) + 1;
    });
    kernel_runs = 0;
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::randn({3})));
      run.note("runs", kernel_runs);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 1);
  EXPECT_COUNTERS(report.total, program_calls == 5);
}

TEST(CasesH, Operators_ThatWriteOrGiveViews) {
  const auto report = expect_same([](Trial& run) {
    static const auto scale =
        op<Tensor&(Tensor&, double)>("temper_cases::scale_");
    static const auto halves =
        op<std::tuple<Tensor, Tensor>(const Tensor&)>("temper_cases::halves");
    auto f = run.compile_function([](Tensor x) {
      auto [first, second] = halves.call(x);
      auto y = first + second;
      scale.call(y, 3.0);
      scale.call(x, 0.5);
      return std::make_tuple(y, second);
    });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({4, 2});
      auto [y, second] = f(x);
      run.note("y", y);
      run.note("second", second);
      second.add_(1);
      run.note("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 5);
}

// It can't be left out, as aten::contiguous can.
TEST(CasesH, Operators_ThatReturnWhatTheyWereGiven) {
  const auto report = expect_same([](Trial& run) {
    static const auto mark = op<Tensor(const Tensor&)>("temper_cases::mark");
    auto f = run.compile_function(
        [](Tensor x) { return mark.call(x.contiguous() * 2) + 1; });
    kernel_runs = 0;
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::randn({3})));
      run.note("runs", kernel_runs);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"temper_cases::mark returns a tensor that it was given", 5}});
}

TEST(CasesH, Operators_WithListsAndNumbers) {
  const auto lists = expect_same([](Trial& run) {
    static const auto parts =
        op<std::vector<Tensor>(const Tensor&, int64_t)>("temper_cases::parts");
    auto f = run.compile_function(
        [](Tensor x, int64_t n) { return torch::cat(parts.call(x, n)).sum(); });
    for (int64_t i = 0; i < 8; ++i) {
      run.note("y", f(torch::randn({3}), 2 + i / 4));
    }
  });
  EXPECT_COUNTERS(lists.total, eager == 0 && program_calls == 6);
  const auto numbers = expect_same([](Trial& run) {
    static const auto both =
        op<std::tuple<Tensor, int64_t>(const Tensor&)>("temper_cases::both");
    auto f = run.compile_function([](Tensor x) {
      auto [y, n] = both.call(x);
      return y * n;
    });
    for (int i = 0; i < 4; ++i) {
      run.note("y", f(torch::randn({3})));
    }
  });
  EXPECT_COUNTERS(
      numbers.total,
      program_calls == 0 && eager == 3 &&
          because("temper_cases::both returns something that is no tensor"));
}

// Lists of scalars of several kinds, as optimizers give them.
TEST(CasesH, Operators_WithListsOfScalars) {
  using Scalars = std::vector<at::Scalar>;
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      const std::vector<Tensor> both{x, y};
      auto sums = at::_foreach_add(both, Scalars{1, 2.5});
      auto products = at::_foreach_mul(sums, Scalars{0.5, 3});
      at::_foreach_mul_(products, Scalars{true, 2});
      return products[0] + products[1];
    });
    for (int i = 0; i < 5; ++i) {
      run.note("y", f(torch::randn({3}), torch::randn({3})));
    }
    auto written = run.compile_function([](Tensor x, Tensor y) {
      const std::vector<Tensor> both{x, y};
      at::_foreach_add_(both, Scalars{2, c10::complex<double>(0, 1)});
      return x * 2;
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({3});
      auto y = torch::randn({3}, torch::kComplexFloat);
      run.note("z", written(x, y));
      run.note("x", x);
      run.note("y", y);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 8);
}

// A number that a slot can't hold.
TEST(CasesH, Operators_WithNumbersPastInt64) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function(
        [](Tensor x) { return x * at::Scalar(uint64_t{1} << 63U); });
    for (int i = 0; i < 4; ++i) {
      run.attempt("call", [&] { run.note("y", f(torch::randn({3}))); });
    }
  });
  EXPECT_COUNTERS(
      report.total,
      program_calls == 0 && eager == 3 && because("past the range of int64"));
}

TEST(CasesH, Operators_Composite) {
  const auto report = expect_same([](Trial& run) {
    static const auto composite =
        op<Tensor(const Tensor&)>("temper_cases::composite");
    auto f = run.compile_function([](Tensor x) { return composite.call(x); });
    for (int i = 0; i < 6; ++i) {
      auto x = torch::randn({3}).requires_grad_();
      auto y = f(x);
      y.sum().backward();
      run.note("y", y);
      run.note_grad("x", x);
      const c10::InferenceMode inference;
      run.note("inference", f(torch::randn({3})).clone());
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 10);
}

template <class F>
Report expect_same_sizes_later(F f) {
  return expect_same([f](Trial& run) {
    auto compiled = run.compile_function(f);
    for (int i = 0; i < 9; ++i) {
      // Three calls with two positive elements, then others.
      run.note(
          "y",
          compiled(torch::tensor(
              {1.F, -2.F, i < 3 ? 3.F : -3.F, i > 6 ? 1.F : -1.F})));
    }
  });
}

TEST(CasesH, Operators_WithSizesThatDependOnData) {
  const auto tagged = expect_same_sizes_later([](Tensor x) {
    static const auto positive =
        op<Tensor(const Tensor&)>("temper_cases::tagged_positive");
    return positive.call(x) * 2;
  });
  EXPECT_COUNTERS(
      tagged.total,
      program_calls == 0 && eager == 8 &&
          because("data dependence: temper_cases::tagged_positive"));
  // Nothing says it of this one.
  const auto untagged = expect_same_sizes_later([](Tensor x) {
    static const auto positive =
        op<Tensor(const Tensor&)>("temper_cases::positive");
    return positive.call(x) * 2;
  });
  EXPECT_COUNTERS(
      untagged.total,
      program_calls == 2 && eager == 6 &&
          because(
              "temper_cases::positive returns other sizes from call to call"));
}

Tensor call_positive(const Tensor& x) {
  static const auto positive =
      op<Tensor(const Tensor&)>("temper_cases::positive");
  return positive.call(x);
}

constexpr const char* kOtherSizes =
    "temper_cases::positive returns other sizes from call to call";

// What the call had written by then is put back.
TEST(CasesH, Operators_WithOtherSizesAfterAWrite) {
  const auto report = expect_same([](Trial& run) {
    auto count = torch::zeros({3});
    auto f = run.compile_function(
        [&count](Tensor x) {
          x.add_(1);
          count.narrow(0, 1, 2).add_(torch::rand({2}));
          return call_positive(x) * 2;
        },
        count);
    for (int i = 0; i < 9; ++i) {
      auto x = torch::tensor({1.F, i < 4 || i == 7 ? -2.F : 2.F});
      run.note("y", f(x));
      run.note("x", x);
      run.note("count", count);
      run.note("versions", int64_t{x._version()} + count._version());
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total,
      traces == 1 && program_calls == 3 &&
          reasons == Reasons{{kOtherSizes, 5}});
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
    const auto x = context->get_saved_variables()[0];
    return {gradients[0] * torch::ones_like(call_positive(x)).sum()};
  }
};

TEST(CasesH, Operators_WithOtherSizesInABackward) {
  for (const int64_t width : {3, 700}) { // The second has several segments.
    const auto report = expect_same([&](Trial& run) {
      auto v = torch::randn({width, width}).requires_grad_();
      auto w = torch::randn({width, width}).requires_grad_();
      auto f = run.compile_function(
          [&](Tensor x) {
            return TimesPositive::apply(x.matmul(v)).matmul(w).sum();
          },
          v,
          w);
      for (int i = 0; i < 9; ++i) {
        auto x = torch::full({1, width}, i < 5 || i == 7 ? 1.F : -1.F);
        x.requires_grad_();
        auto y = f(x);
        y.backward();
        run.note("y", y);
        run.note_grad("x", x);
        run.note_grad("v", v);
        run.note_grad("w", w);
      }
    });
    // The sixth backward, and the calls after it.
    EXPECT_COUNTERS(report.total, reasons == Reasons{{kOtherSizes, 4}});
    EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 4);
  }
}

int64_t number_of_call = 0; // Which no guard sees.

// A shadow run believes the trace's sizes; it has to start again where it is to
// become real.
TEST(CasesH, Operators_WithOtherSizesInAShadowRun) {
  enum class End { kPlain, kDiffers, kThrows, kSwallows, kKeeps };
  for (const auto end :
       {End::kPlain,
        End::kDiffers,
        End::kThrows,
        End::kSwallows,
        End::kKeeps}) {
    const auto report = expect_same([end](Trial& run) {
      static Tensor kept;
      kept.reset();
      auto f = run.compile_function([end](Tensor x) {
        x.add_(1);
        auto y = call_positive(x);
        // The first call is traced, the second shadowed.
        const bool second = number_of_call == 1;
        if (second && end == End::kThrows) {
          throw std::runtime_error("the user's");
        }
        if (end == End::kSwallows && second) {
          try {
            return y.sin();
          } catch (const std::exception&) {
            return x.add_(100);
          }
        }
        if (end == End::kKeeps) {
          kept = y.cos();
        }
        return second && end == End::kDiffers ? y.sin() : y * torch::rand({});
      });
      for (int i = 0; i < 5; ++i) {
        auto x = torch::tensor({1.F, i == 0 ? -2.F : 2.F});
        number_of_call = i;
        run.attempt("call", [&] { run.note("y", f(x)); });
        run.note("x", x);
        run.note("version", int64_t{x._version()});
        run.note("kept", kept.defined() ? kept : x);
        run.note_generator();
      }
    });
    // What is kept ends the trace already.
    EXPECT_COUNTERS(
        report.total,
        traces == 1 && program_calls == 0 &&
            (end == End::kKeeps
                 ? shadow_runs == 0
                 : shadow_runs == 1 && reasons == Reasons{{kOtherSizes, 4}}));
  }
}

TEST(CasesH, Operators_ThatCountVersionsTwice) {
  const auto report = expect_same([](Trial& run) {
    static const auto scale_and_shift =
        op<Tensor&(Tensor&, double)>("temper_cases::scale_and_shift_");
    auto buffer = torch::ones({3});
    auto f = run.compile_function(
        [&buffer](Tensor x) {
          scale_and_shift.call(buffer, 0.5);
          return x * buffer;
        },
        buffer);
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::randn({3})));
      run.note("buffer", buffer);
      run.note("version", int64_t{buffer._version()});
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 5);
}

// A kernel may use threads of its own.
TEST(CasesH, Operators_WithThreads) {
  const auto report = expect_same([](Trial& run) {
    static const auto threaded =
        op<Tensor(const Tensor&)>("temper_cases::threaded");
    auto f = run.compile_function(
        [](Tensor x) { return threaded.call(x.sin()) + threaded.call(x); });
    for (int i = 0; i < 6; ++i) {
      run.note("y", f(torch::randn({3})));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 5);
}

} // namespace
} // namespace temper::testing
