// The oracle: the same code, run without temper and then with it, on equal
// inputs, weights and generator states, must show the same things.
//
// A scenario is a function of a Trial. It makes its own modules and tensors
// (both runs start from the same seed), compiles through the Trial, calls as a
// user calls, and notes what a user could see:
//
//   const auto report = expect_same([](Trial& run) {
//     Net net;
//     run.compile(net);
//     auto y = net(torch::randn({2, 8}));
//     run.note("y", y);
//   });
//   EXPECT_COUNTERS(report.total, eager == 0);
//
// What is noted is compared bit for bit, with strides, dtype, requires_grad,
// is_leaf and with what shares memory with what else was noted.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <temper/temper.h>

#include "support/counters.h"
#include "support/transcript.h"

namespace temper::testing {

class Trial {
 public:
  Trial(bool compiled, uint64_t seed);

  /// True in the run with temper. For what only that run can do; what is noted
  /// must not depend on it.
  bool compiled() const {
    return compiled_;
  }
  uint64_t seed() const {
    return seed_;
  }

  /// Compiles `net` in place, in the run with temper.
  template <class Net>
  void compile(Net& net, const CompileOptions& options = {}) {
    if (compiled_) {
      net->compile(options);
      // A copy, so that it can still be asked when the scenario is over.
      explain_ = [net] { return temper::explain(net); };
    }
  }

  /// `f`, or in the run with temper `temper::compile(f, watched...)`.
  template <class F, class... Watched>
  auto compile_function(F f, Watched&&... watched) {
    using Compiled =
        decltype(temper::compile(f, std::forward<Watched>(watched)...));
    std::optional<Compiled> with;
    if (compiled_) {
      with.emplace(temper::compile(f, std::forward<Watched>(watched)...));
    }
    if constexpr (requires { temper::explain(*with); }) {
      if (compiled_) {
        explain_ = [with] { return temper::explain(*with); };
      }
    }
    return [f = std::move(f),
            with = std::move(with)]<class... Args>(Args&&... args) mutable
           -> std::decay_t<std::invoke_result_t<F&, Args...>> {
      if (with) {
        return (*with)(std::forward<Args>(args)...);
      }
      return f(std::forward<Args>(args)...);
    };
  }

  // What is seen. Never called from inside compiled code.
  void note(const std::string& name, const torch::Tensor& tensor);
  void note(const std::string& name, const std::vector<torch::Tensor>& list);
  void note(const std::string& name, int64_t value);
  void note(const std::string& name, double value);
  void note(const std::string& name, const std::string& value);
  template <class... T>
  void note(const std::string& name, const std::tuple<T...>& values) {
    note_all(name, values, std::index_sequence_for<T...>());
  }
  /// The gradient of a leaf, or that it has none.
  void note_grad(const std::string& name, const torch::Tensor& leaf);
  /// Parameters, their gradients, and buffers.
  void note_module(const std::string& name, const torch::nn::Module& module);
  /// The state of the default generator.
  void note_generator();

  /// Runs `f` and notes its exception, type and text, or that it had none.
  /// True iff it had none.
  template <class F>
  bool attempt(const std::string& name, F&& f) {
    return attempt_erased(name, std::function<void()>(std::ref(f)));
  }

  /// From here on calls are counted in `Report::steady`; and no more.
  void steady();
  void warm_up();

  const Transcript& transcript() const {
    return transcript_;
  }
  Counters steady_counters();
  std::string explain() const;

 private:
  template <class Tuple, size_t... I>
  void note_all(
      const std::string& name,
      const Tuple& values,
      std::index_sequence<I...>) {
    (note(name + "[" + std::to_string(I) + "]", std::get<I>(values)), ...);
  }
  bool attempt_erased(const std::string& name, const std::function<void()>& f);

  bool compiled_;
  uint64_t seed_;
  Transcript transcript_;
  std::function<std::string()> explain_;
  std::optional<Counters> steady_since_;
  Counters steady_;
};

/// What temper did in the compiled run.
struct Report {
  Tally total;
  Tally steady; ///< Between `steady()` and `warm_up()` or the end.
};

struct Settings {
  Tolerance tolerance;
  /// Why a tolerance is right; must be given with one.
  std::string why_tolerance;
};

/// Runs the scenario without and with temper and reports each difference as a
/// failure of the test, with the seed and the line that re-runs it.
Report expect_same(
    const std::function<void(Trial&)>& scenario,
    const Settings& settings = {},
    std::source_location where = std::source_location::current());

/// The seed of all tests: $TEMPER_TEST_SEED, or 1.
uint64_t test_seed();

/// "TEMPER_TEST_SEED=1 cases_tests --gtest_filter=Cases.A1_NoGrad".
std::string rerun_line();

} // namespace temper::testing
