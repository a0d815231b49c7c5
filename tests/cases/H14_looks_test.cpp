// Case H14: printing, saving, iterating and reading tensors inside forward: in
// every call, so that the trace meets it, and in the shadowed call alone.
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "nets.h"
#include "support/compare.h"
#include "support/subprocess.h"

namespace temper::testing {
namespace {

using torch::Tensor;

// Calls of the function until now: its code can see it, guards can't.
int64_t call_number = 0;

// Five calls with a leaf, or with a tensor without gradient.
template <class F>
Report run_calls(F f, bool requires_grad) {
  return expect_same([f, requires_grad](Trial& run) {
    call_number = 0;
    auto compiled = run.compile_function(f);
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({3, 2}).requires_grad_(requires_grad);
      run.attempt("call", [&] {
        auto y = compiled(x);
        run.note("y", y);
        if (requires_grad) {
          y.sum().backward();
          run.note_grad("x", x);
        }
      });
    }
  });
}

// `Look` looks at a tensor midway, at an argument and at a view, in a process
// of its own. In each call: these are eager, for `reason`. In the second one
// only: it goes on eagerly once it looks, or, where it reads data by pointer
// (`reads`), from the start and for good.
template <class Look>
void expect_may_look(const char* reason, const Look&, bool reads = false) {
  EXPECT_SURVIVES({
    const auto always = [](Tensor x) {
      auto y = x.exp();
      Look()(y); // Not captured: guards could not watch it.
      return y * 2;
    };
    for (const bool requires_grad : {false, true}) {
      const auto report = run_calls(always, requires_grad);
      EXPECT_COUNTERS(
          report.total, eager == 4 && because(reason) && program_calls == 0);
    }
  });
  const auto once = []<class Which>(Which) {
    return [](Tensor x) {
      auto y = x.exp();
      if (++call_number == 2) {
        Look()(Which()(x, y));
      }
      return y * 2;
    };
  };
  const auto expect_once = [](const auto& f, bool for_good) {
    for (const bool requires_grad : {false, true}) {
      const auto report = run_calls(f, requires_grad);
      if (for_good) {
        EXPECT_COUNTERS(
            report.total,
            eager == 4 && traces == 1 && program_calls == 0 &&
                because("the data of a tensor is read"));
        continue;
      }
      // Traced, diverged, traced again, shadowed, by program.
      EXPECT_COUNTERS(
          report.total, eager == 1 && traces == 2 && program_calls == 2);
    }
  };
  EXPECT_SURVIVES({
    expect_once(once([](const Tensor&, const Tensor& y) { return y; }), reads);
  });
  EXPECT_SURVIVES({
    expect_once(once([](const Tensor& x, const Tensor&) { return x; }), reads);
  });
  EXPECT_SURVIVES({
    // Its operator is not in the trace.
    expect_once(
        once([](const Tensor&, const Tensor& y) { return y.t(); }), false);
  });
}

TEST(CasesHDeathTest, H14_Printing) {
  expect_may_look("the data of a tensor is read", [](const Tensor& y) {
    std::ostringstream out;
    out << y << y.sizes() << y.toString();
    TORCH_CHECK(!out.str().empty());
  });
}

TEST(CasesHDeathTest, H14_Saving) {
  expect_may_look(
      "aten::set_.source_Storage",
      [](const Tensor& y) {
        std::stringstream archive;
        torch::save(y, archive);
        Tensor loaded;
        torch::load(loaded, archive);
        TORCH_CHECK(torch::equal(loaded, y.detach()));
      },
      /*reads=*/true);
}

TEST(CasesHDeathTest, H14_Iterating) {
  expect_may_look("aten::_local_scalar_dense", [](const Tensor& y) {
    double sum = 0;
    for (int64_t i = 0; i < y.size(0); ++i) {
      sum += y[i].sum().item<double>();
    }
    TORCH_CHECK(sum != 0);
  });
}

TEST(CasesHDeathTest, H14_RawPointers) {
  expect_may_look(
      "the data of a tensor is read",
      [](const Tensor& y) { TORCH_CHECK(y.const_data_ptr<float>()[5] != 0); },
      /*reads=*/true);
  expect_may_look("the data of a tensor is read", [](const Tensor& y) {
    auto copy = y.detach().clone();
    static_cast<float*>(copy.data_ptr())[0] = 1;
    copy.mutable_data_ptr<float>()[1] = 2;
    const auto read = copy.accessor<float, 2>();
    TORCH_CHECK(read[0][0] == 1 && copy.const_data_ptr<float>()[1] == 2);
  });
}

TEST(CasesHDeathTest, H14_CustomLoopOnAnotherThread) {
  expect_may_look(
      "the data of a tensor is read",
      [](const Tensor& y) {
        float first = 0;
        std::exception_ptr error;
        std::thread([&] {
          try {
            first = y.const_data_ptr<float>()[0];
          } catch (...) {
            error = std::current_exception();
          }
        }).join();
        if (error) {
          std::rethrow_exception(error);
        }
        TORCH_CHECK(first != 0);
      },
      /*reads=*/true);
}

} // namespace
} // namespace temper::testing
