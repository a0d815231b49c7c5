// Shadow runs: what matches, what differs, and that a call which differs at any
// step goes on as if it had been eager from its start.
#include "capture/shadow.h"

#include <gmock/gmock.h>

#include <limits>
#include <stdexcept>
#include <thread>

#include "captures.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A shadowed call, as a call site makes it.
struct Shadowed {
  std::unique_ptr<ShadowRun> run;
  Tensors results; ///< The call's own tensors in the place of shadows.
};

Shadowed shadow(
    const Trace& trace,
    const Code& code,
    const Tensors& arguments) {
  Shadowed shadowed{std::make_unique<ShadowRun>(trace, arguments), {}};
  auto& run = *shadowed.run;
  try {
    const InterceptScope scope(run);
    shadowed.results = code(run.arguments());
  } catch (const c10::Error& error) {
    if (!run.materialised() &&
        std::string(error.what()).find(kShadowDataMessage) !=
            std::string::npos) {
      throw;
    }
    run.materialise("the code threw");
    throw;
  } catch (...) {
    run.materialise("the code threw");
    throw;
  }
  if (!run.materialised() && !run.complete()) {
    run.materialise("the code ended before its trace");
  }
  if (run.materialised()) {
    for (auto& result : shadowed.results) {
      if (result.defined()) {
        result = run.original(result);
      }
    }
  }
  return shadowed;
}

std::string divergence(
    const Code& traced,
    const Code& code,
    const Tensors& arguments,
    const Watched& watched = {}) {
  const auto captured = record(traced, arguments, watched);
  EXPECT_EQ(captured.reason(), "");
  const auto shadowed = shadow(captured.trace(), code, copies(arguments));
  EXPECT_EQ(shadowed.run->complete(), shadowed.run->divergence().empty());
  if (shadowed.run->materialised()) {
    EXPECT_TRUE(same(code(copies(arguments)), shadowed.results));
  }
  return shadowed.run->divergence();
}

void expect_match(
    const Code& code,
    const Tensors& arguments,
    const Watched& watched = {}) {
  const auto captured = record(code, arguments, watched);
  ASSERT_EQ(captured.reason(), "");
  const auto before = copies(arguments);
  auto shadowed = shadow(captured.trace(), code, arguments);
  EXPECT_EQ(shadowed.run->divergence(), "");
  EXPECT_TRUE(shadowed.run->complete());
  for (size_t i = 0; i < shadowed.results.size(); ++i) {
    const auto& result = shadowed.results[i];
    EXPECT_EQ(
        result.defined() ? shadowed.run->find(result) : kNoValue,
        captured.results[i].defined()
            ? captured.recorder->resolve(captured.results[i])
            : kNoValue);
  }
  shadowed.run->restore();
  EXPECT_TRUE(same(before, arguments));
}

class ShadowTest : public testing::Test {
 protected:
  ShadowTest() {
    torch::manual_seed(1);
  }
};

struct Twice : torch::autograd::Function<Twice> {
  static at::Tensor forward(
      torch::autograd::AutogradContext* context,
      const at::Tensor& x) {
    context->save_for_backward({x});
    return x + x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::variable_list& gradients) {
    return {gradients[0] * 2 + context->get_saved_variables()[0] * 0};
  }
};

// What a program does differently at one of its steps.
enum class Twist : uint8_t { kNone, kOtherOp, kThrow, kReturn, kReadData };

struct Stop {};

class Steps {
 public:
  Steps(Twist twist, int at) : twist_(twist), at_(at) {}

  // Each step passes its tensor through here.
  // `state`: watched state, whose memory a shadow run doesn't guard.
  at::Tensor operator()(at::Tensor tensor, bool state = false) {
    if (count_++ != at_ || (state && twist_ == Twist::kReadData)) {
      return tensor;
    }
    switch (twist_) {
      case Twist::kNone:
        break;
      case Twist::kOtherOp:
        return tensor.sign().mul(3).add(tensor);
      case Twist::kThrow:
        throw std::runtime_error("twisted");
      case Twist::kReturn:
        last_ = tensor;
        throw Stop();
      case Twist::kReadData:
        return tensor + static_cast<const float*>(tensor.const_data_ptr())[0];
    }
    return tensor;
  }
  int count() const {
    return count_;
  }
  const at::Tensor& last() const {
    return last_;
  }

 private:
  Twist twist_;
  int at_;
  int count_ = 0;
  at::Tensor last_;
};

// A world of arguments and state; two of them begin equal.
struct World {
  World() {
    torch::manual_seed(5);
    leaf = torch::randn({3, 4}).requires_grad_();
    history = torch::randn({3, 4}).requires_grad_();
    all = torch::randn({5, 4});
    weight = torch::randn({4, 4}).requires_grad_();
    bias = torch::randn({4}).requires_grad_();
    steps = torch::zeros({4});
    watched = {{"weight", weight}, {"bias", bias}, {"steps", steps}};
  }
  // A leaf, a tensor with a history, a slice (at any offset), one object twice.
  Tensors arguments(int64_t row) {
    auto slice = all[row];
    return {leaf, history * 1.5, slice, slice};
  }
  Tensors leaves() const {
    return {leaf, history, weight, bias};
  }

  at::Tensor leaf, history, all, weight, bias, steps;
  Watched watched;
};

Tensors program(const World& world, const Tensors& a, Steps& step) {
  try {
    auto h = step(a[0].mm(world.weight));
    h = step(h + world.bias + a[1]);
    h = step(h.mul_(0.5));
    auto v = step(h.t());
    v = step(v.contiguous().relu());
    const auto parts = v.split(2, 0);
    auto p = step(parts[1]);
    p = step(torch::dropout(p, 0.5, true));
    p = step(p * step(torch::tensor(std::vector<float>{1, 2, 4})));
    p = step(Twice::apply(p));
    auto y = step(p.sum(0) + parts[0].mean());
    {
      at::NoGradGuard no_grad;
      step(a[2].add_(1));
      step(a[3].narrow(0, 1, 2).mul_(world.bias[0]));
      step(world.steps.add_(a[2]), /*state=*/true);
      auto out = torch::empty({4});
      step(at::add_out(out, world.steps, a[3]));
      world.steps.copy_(out);
    }
    auto u = step(
        y.index_select(0, torch::tensor(std::vector<int64_t>{2, 0})) *
        world.steps.narrow(0, 0, 2));
    u.unsqueeze_(0);
    step(torch::cat({u, u.detach()}));
    u = step(u.expand({3, 2}));
    return {u, y, h.t(), a[2], a[0], step(a[1].view({-1}))};
  } catch (const Stop&) {
    return {step.last(), a[2]};
  }
}

Code twisted(const World& world, Twist twist, int at, int* count = nullptr) {
  return [&world, twist, at, count](const Tensors& a) {
    Steps steps(twist, at);
    auto results = program(world, a, steps);
    if (count != nullptr) {
      *count = steps.count();
    }
    return results;
  };
}

// What a user could see of a call.
struct Seen {
  Tensors results;
  Tensors gradients;
  Tensors state;
  std::vector<int64_t> versions;
  GeneratorState generator;
  std::string error;
};

Seen look(const World& world, const Tensors& results, std::string error) {
  Seen seen;
  seen.generator = GeneratorState::current();
  at::Tensor loss;
  for (const auto& result : results) {
    seen.results.push_back(result.detach().clone());
    if (result.requires_grad()) {
      const auto part = (result * result).sum();
      loss = loss.defined() ? loss + part : part;
    }
  }
  if (loss.defined()) {
    seen.gradients = torch::autograd::grad(
        {loss},
        world.leaves(),
        {},
        c10::nullopt,
        /*create_graph=*/false,
        /*allow_unused=*/true);
  }
  seen.state = copies({world.all, world.steps, world.leaf, world.weight});
  seen.versions = {
      static_cast<int64_t>(world.all._version()),
      static_cast<int64_t>(world.steps._version())};
  seen.error = std::move(error);
  return seen;
}

void expect_same(const Seen& expected, const Seen& actual) {
  EXPECT_EQ(expected.error, actual.error);
  EXPECT_TRUE(same(expected.results, actual.results));
  EXPECT_TRUE(same(expected.gradients, actual.gradients));
  EXPECT_TRUE(same(expected.state, actual.state));
  EXPECT_EQ(expected.versions, actual.versions);
  EXPECT_TRUE(expected.generator == actual.generator);
}

enum class Mode : uint8_t { kGrad, kNoGrad, kInference };

class ShadowProgramTest : public testing::TestWithParam<Mode> {
 protected:
  ShadowProgramTest() {
    World world;
    const auto arguments = world.arguments(1);
    const Modes modes(GetParam());
    captured = record(
        twisted(world, Twist::kNone, -1, &count), arguments, world.watched);
    // The program's own world is gone; another one takes its place.
  }

  struct Modes {
    explicit Modes(Mode mode)
        : inference(mode == Mode::kInference), grad(mode == Mode::kGrad) {}
    c10::InferenceMode inference; // First: `false` switches gradients on.
    at::AutoGradMode grad;
  };

  // The trace, as a call site would have it for this world.
  Trace trace_for(const World& world) const {
    auto trace = captured.trace();
    for (size_t i = 0; i < trace.bindings.size(); ++i) {
      for (const auto& [name, tensor] : world.watched) {
        if (trace.graph.inputs[i].name == name) {
          trace.bindings[i].watched = tensor.unsafeGetTensorImpl();
        }
      }
    }
    return trace;
  }

  Seen eager(Twist twist, int at) {
    World world;
    auto arguments = world.arguments(3);
    torch::manual_seed(9);
    Tensors results;
    std::string error;
    {
      const Modes modes(GetParam());
      try {
        results = twisted(world, twist, at)(arguments);
      } catch (const std::exception& e) {
        error = e.what();
      }
    }
    return look(world, results, error);
  }

  int count = 0;
  Captured captured;
};

TEST_P(ShadowProgramTest, MatchesAndChangesNothing) {
  ASSERT_EQ(captured.reason(), "");
  World world;
  const auto trace = trace_for(world);
  auto arguments = world.arguments(3);
  torch::manual_seed(9);
  const auto before = look(world, {}, "");
  {
    const Modes modes(GetParam());
    auto shadowed = shadow(trace, twisted(world, Twist::kNone, -1), arguments);
    ASSERT_EQ(shadowed.run->divergence(), "");
    ASSERT_TRUE(shadowed.run->complete());
    EXPECT_FALSE(shadowed.run->materialised());
    // Results look as in the trace.
    ASSERT_EQ(shadowed.results.size(), captured.results.size());
    for (size_t i = 0; i < shadowed.results.size(); ++i) {
      const auto& is = shadowed.results[i];
      const auto& was = captured.results[i];
      EXPECT_EQ(shadowed.run->find(is), captured.recorder->resolve(was)) << i;
      EXPECT_EQ(is.sizes(), was.sizes()) << i;
      EXPECT_EQ(is.strides(), was.strides()) << i;
      EXPECT_EQ(is.requires_grad(), was.requires_grad()) << i;
      EXPECT_EQ(is.is_leaf(), was.is_leaf()) << i;
      if (shadowed.run->original(is).is_same(is)) { // No argument.
        EXPECT_EQ(is.is_view(), was.is_view()) << i;
      }
      EXPECT_EQ(is.is_inference(), was.is_inference()) << i;
      EXPECT_EQ(is.key_set(), was.key_set()) << i;
      if (!is.is_inference()) {
        EXPECT_EQ(is._version(), was._version()) << i;
      }
    }
    shadowed.results.clear();
    EXPECT_THAT(shadowed.run->alive_values(), IsEmpty());
    shadowed.run->restore();
  }
  expect_same(before, look(world, {}, ""));
}

TEST_P(ShadowProgramTest, TwistedAtAnyStepItGoesOnAsEager) {
  ASSERT_GE(count, 19);
  for (const auto twist : {Twist::kOtherOp, Twist::kThrow, Twist::kReturn}) {
    // Returning what the last step gave is not ending early.
    const int steps = twist == Twist::kReturn ? count - 1 : count;
    for (int at = 0; at < steps; ++at) {
      SCOPED_TRACE(c10::str(
          "twist ", static_cast<int>(twist), " at step ", at, " of ", count));
      World world;
      const auto trace = trace_for(world);
      auto arguments = world.arguments(3);
      torch::manual_seed(9);
      Tensors results;
      std::string error;
      {
        const Modes modes(GetParam());
        try {
          auto shadowed = shadow(trace, twisted(world, twist, at), arguments);
          EXPECT_TRUE(shadowed.run->materialised());
          EXPECT_FALSE(shadowed.run->complete());
          EXPECT_NE(shadowed.run->divergence(), "");
          results = shadowed.results;
        } catch (const std::exception& e) {
          error = e.what();
        }
      }
      expect_same(eager(twist, at), look(world, results, error));
    }
  }
}

TEST_P(ShadowProgramTest, ARawReadAtAnyStepStartsAgain) {
  int thrown = 0;
  for (int at = 0; at < count; ++at) {
    SCOPED_TRACE(c10::str("read at step ", at, " of ", count));
    World world;
    const auto trace = trace_for(world);
    auto arguments = world.arguments(3);
    torch::manual_seed(9);
    const auto before = look(world, {}, "");
    const auto code = twisted(world, Twist::kReadData, at);
    Tensors results;
    {
      const Modes modes(GetParam());
      ShadowRun run(trace, arguments);
      try {
        const InterceptScope scope(run);
        results = code(run.arguments());
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(kShadowDataMessage));
        EXPECT_FALSE(run.materialised());
        ++thrown;
      }
      if (run.materialised()) {
        // Real memory, a literal's: was read, and the next op differed.
        for (auto& result : results) {
          result = run.original(result);
        }
      } else {
        results.clear();
        run.restore();
        expect_same(before, look(world, {}, ""));
        results = code(arguments);
      }
    }
    expect_same(eager(Twist::kReadData, at), look(world, results, ""));
  }
  EXPECT_EQ(thrown, count - 2); // But for a literal and for state.
}

std::string name_of_mode(const testing::TestParamInfo<Mode>& test) {
  const char* const names[] = {"Grad", "NoGrad", "Inference"};
  return names[static_cast<size_t>(test.param)];
}
constexpr Mode kModes[] = {Mode::kGrad, Mode::kNoGrad, Mode::kInference};

INSTANTIATE_TEST_SUITE_P(
    Modes,
    ShadowProgramTest,
    testing::ValuesIn(kModes),
    name_of_mode);

TEST_F(ShadowTest, NumbersAreComparedByBits) {
  const auto times = [](double factor) {
    return [factor](const Tensors& a) -> Tensors { return {a[0] * factor}; };
  };
  const auto narrow = [](int64_t start) {
    return [start](const Tensors& a) -> Tensors {
      return {a[0].narrow(0, start, 2)};
    };
  };
  const Tensors x = {torch::randn({4})};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(divergence(times(0.5), times(0.5), x), "");
  EXPECT_EQ(divergence(times(nan), times(nan), x), "");
  EXPECT_THAT(divergence(times(0.0), times(-0.0), x), HasSubstr("a number"));
  EXPECT_THAT(divergence(times(0.5), times(0.25), x), HasSubstr("a number"));
  EXPECT_EQ(
      divergence(narrow(1), narrow(2), x),
      "aten::slice.Tensor: a number differs (argument 'start')");
  // An integer is not the double of its value.
  EXPECT_NE(
      divergence(
          times(2.0),
          [](const Tensors& a) -> Tensors { return {a[0] * 2}; },
          x),
      "");
  EXPECT_EQ(
      divergence(
          [](const Tensors& a) -> Tensors {
            return {a[0].view({2, 2})};
          },
          [](const Tensors& a) -> Tensors {
            return {a[0].view({1, 4})};
          },
          x),
      "aten::view: numbers differ (argument 'size')");
}

// Counts the ops that came boxed.
class CountingRun : public ShadowRun {
 public:
  using ShadowRun::ShadowRun;
  void handle(
      const c10::OperatorHandle& op,
      c10::DispatchKeySet below,
      torch::jit::Stack* stack) override {
    ++boxed;
    ShadowRun::handle(op, below, stack);
  }
  int boxed = 0;
};

// Those that networks call most match without boxing: results of each kind
// (one tensor, several, an operand), arguments of each kind.
TEST_F(ShadowTest, CommonOpsAreNotBoxed) {
  const auto code = [](int64_t from, int64_t to) -> Code {
    return [from, to](const Tensors& a) -> Tensors {
      auto x = torch::addmm(a[2], a[0], a[1].t()).add_(a[0]);
      x = torch::gelu(x.view({2, 4, 2}).transpose(from, to));
      x = std::get<0>(torch::native_layer_norm(x, {2}, {}, {}, 1e-5));
      const auto total = torch::sum(x.slice(0, 1), {1}, true, at::kDouble);
      return {
          torch::_softmax(x.select(0, 1).expand({3, 2, 2}), -1, false),
          total.to(at::kFloat),
          at::empty_like(x).copy_(x).bernoulli_(0.5)};
    };
  };
  const Tensors arguments = {
      torch::randn({4, 4}),
      torch::randn({4, 4}, at::requires_grad()),
      torch::randn({4})};
  const auto captured = record(code(0, 1), arguments);
  ASSERT_EQ(captured.reason(), "");
  const auto boxed = [&](const Code& again) {
    CountingRun run(captured.trace(), arguments);
    {
      const InterceptScope scope(run);
      again(run.arguments());
    }
    EXPECT_EQ(run.complete(), run.divergence().empty());
    return std::pair(run.boxed, run.divergence());
  };
  EXPECT_EQ(boxed(code(0, 1)), std::pair(0, std::string()));
  // What differs is boxed, as is all behind it.
  const auto different = boxed(code(1, 0));
  EXPECT_GT(different.first, 5);
  EXPECT_EQ(
      different.second,
      "aten::transpose.int: an argument differs (argument 'dim0')");
}

TEST_F(ShadowTest, DifferencesAreNamed) {
  const Tensors xy = {torch::randn({2, 2}), torch::randn({2, 2})};
  const Code traced = [](const Tensors& a) -> Tensors {
    return {torch::cat({a[0].sum(0, true), a[1]})};
  };
  const auto why = [&](const Code& code) {
    return divergence(traced, code, xy);
  };
  EXPECT_EQ(why(traced), "");
  EXPECT_EQ(
      why([](const Tensors& a) -> Tensors {
        return {torch::cat({a[1].sum(0, true), a[1]})};
      }),
      "aten::sum.dim_IntList: an operand is another tensor (argument 'self')");
  EXPECT_EQ(
      why([](const Tensors& a) -> Tensors { return {a[0].sum(0, false)}; }),
      "aten::sum.dim_IntList: an argument differs (argument 'keepdim')");
  EXPECT_EQ(
      why([](const Tensors& a) -> Tensors { return {a[0].mean(0, true)}; }),
      "aten::mean.dim: the trace had aten::sum.dim_IntList");
  EXPECT_EQ(
      why([](const Tensors& a) -> Tensors {
        const auto sum = a[0].sum(0, true);
        return {torch::cat({sum, a[1], sum})};
      }),
      "aten::cat: a tensor list has another length (argument 'tensors')");
  EXPECT_EQ(
      why([](const Tensors& a) -> Tensors {
        return {torch::cat({a[0].sum(0, true), a[1]}).neg()};
      }),
      "aten::neg: the trace had ended");
  EXPECT_EQ(
      why([](const Tensors& a) -> Tensors { return {a[0].sum(0, true)}; }),
      "the code ended before its trace");
}

TEST_F(ShadowTest, UndefinedOperandsMatchUndefinedOnes) {
  const auto norm = [](bool weighted) {
    return [weighted](const Tensors& a) -> Tensors {
      return {at::layer_norm(a[0], {4}, weighted ? a[1] : at::Tensor())};
    };
  };
  const Tensors x = {torch::randn({2, 4}), torch::randn({4})};
  EXPECT_EQ(divergence(norm(true), norm(true), x), "");
  EXPECT_EQ(divergence(norm(false), norm(false), x), "");
  EXPECT_THAT(divergence(norm(true), norm(false), x), HasSubstr("'weight'"));
  EXPECT_THAT(divergence(norm(false), norm(true), x), HasSubstr("'weight'"));
  const auto index = [](bool second) {
    return [second](const Tensors& a) -> Tensors {
      return {
          second ? at::index_put(a[0], {c10::nullopt, a[1]}, a[2])
                 : at::index_put(a[0], {a[1]}, a[2])};
    };
  };
  const Tensors xi = {
      torch::randn({2, 2}), torch::tensor({1, 0}), torch::randn({2})};
  EXPECT_EQ(divergence(index(true), index(true), xi), "");
  EXPECT_THAT(divergence(index(true), index(false), xi), HasSubstr("length"));
}

TEST_F(ShadowTest, ConstantsWrittenInTheCodeAreCompared) {
  const auto plus = [](std::vector<float> numbers) {
    return [numbers](const Tensors& a) -> Tensors {
      return {a[0] + torch::tensor(numbers)};
    };
  };
  const Tensors x = {torch::randn({2})};
  EXPECT_EQ(divergence(plus({1, 2}), plus({1, 2}), x), "");
  EXPECT_THAT(
      divergence(plus({1, 2}), plus({1, 3}), x),
      HasSubstr("a constant written in the code differs"));
  EXPECT_THAT(
      divergence(plus({0.F, 2}), plus({-0.F, 2}), x),
      HasSubstr("a constant written in the code differs"));
}

TEST_F(ShadowTest, ReadingAShadowThrowsAndNamesWhy) {
  const auto x = torch::randn({3}).requires_grad_();
  const auto captured =
      record([](const Tensors& a) -> Tensors { return {(a[0] + 1).t()}; }, {x});
  ShadowRun run(captured.trace(), {x});
  const InterceptScope scope(run);
  const auto& shadow_x = run.arguments()[0];
  const auto y = shadow_x + 1;
  for (const auto& tensor : {shadow_x, y, y.data(), y.t()}) {
    for (const auto& read : std::vector<std::function<void()>>{
             [&] { tensor.const_data_ptr(); },
             [&] { tensor.mutable_data_ptr(); },
             [&] { tensor.storage().data(); },
             [&] { tensor.accessor<float, 1>()[0]; }}) {
      try {
        read();
        FAIL() << "was read";
      } catch (const c10::Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(kShadowDataMessage));
      }
    }
  }
  EXPECT_TRUE(shadow_x.is_leaf() && shadow_x.requires_grad());
  EXPECT_TRUE(run.complete());
}

TEST_F(ShadowTest, ASliceAtAnotherOffsetMatches) {
  const Code code = [](const Tensors& a) -> Tensors {
    return {a[0] + a[1], a[0].narrow(0, 1, 2)};
  };
  const auto all = torch::randn({5, 3});
  const auto captured = record(code, {all[0], all[1]});
  ASSERT_EQ(captured.reason(), "");
  const auto matched = shadow(captured.trace(), code, {all[3], all[4]});
  EXPECT_TRUE(matched.run->complete());
  // Going on eagerly it sees its own rows.
  const Code other = [](const Tensors& a) -> Tensors {
    auto sum = a[0] + a[1];
    a[0].mul_(2);
    return {sum, a[0].narrow(0, 1, 2), a[0]};
  };
  const auto mine = all.clone();
  const auto eager = all.clone();
  const auto expected = other({eager[3], eager[4]});
  const auto turned = shadow(captured.trace(), other, {mine[3], mine[4]});
  EXPECT_TRUE(turned.run->materialised());
  EXPECT_TRUE(same(expected, turned.results));
  EXPECT_TRUE(same(eager, mine));
  EXPECT_TRUE(turned.results[1].is_alias_of(mine));
}

TEST_F(ShadowTest, ArgumentsThatShareMemoryHaveShadowsThatDo) {
  const auto base = torch::randn({4, 3});
  const Code code = [](const Tensors& a) -> Tensors {
    a[0].add_(1);
    return {a[1] * a[2], a[3]};
  };
  const auto arguments = [](const at::Tensor& of) -> Tensors {
    return {of, of.t(), of.narrow(1, 1, 1).t(), of};
  };
  expect_match(
      [](const Tensors& a) -> Tensors {
        EXPECT_TRUE(a[0].is_alias_of(a[1]) && a[0].is_alias_of(a[2]));
        EXPECT_TRUE(a[0].is_same(a[3]) && !a[0].is_same(a[1]));
        a[0].add_(1);
        return {a[1] * a[0].t(), a[3]};
      },
      arguments(base));
  const auto captured = record(code, arguments(base.clone()));
  for (const auto& shadowed :
       {shadow(captured.trace(), code, arguments(base))}) {
    EXPECT_TRUE(shadowed.run->complete());
  }
}

TEST_F(ShadowTest, UndefinedArgumentsAndResults) {
  expect_match(
      [](const Tensors& a) -> Tensors {
        return {a[0].defined() ? a[0] : a[1].neg(), at::Tensor(), a[1]};
      },
      {at::Tensor(), torch::randn({2})});
}

TEST_F(ShadowTest, EqualOfATensorWithItselfMatches) {
  expect_match(
      [](const Tensors& a) -> Tensors {
        return {a[0].equal(a[0]) ? a[0] + a[0] : a[0]};
      },
      {torch::randn({3})});
}

TEST_F(ShadowTest, WhatIsKeptIsAliveAndCanBeGivenData) {
  at::Tensor kept;
  const Code code = [&](const Tensors& a) -> Tensors {
    const auto y = a[0] + a[0];
    kept = y.t();
    return {y.neg()};
  };
  const Tensors x = {torch::randn({2, 3})};
  const auto captured = record(code, x);
  auto shadowed = shadow(captured.trace(), code, x);
  ASSERT_TRUE(shadowed.run->complete());
  shadowed.results.clear();
  // A view, with the base that it holds.
  const auto& ops = captured.trace().graph.ops;
  EXPECT_THAT(
      shadowed.run->alive_values(),
      ElementsAre(ops[0].results[0], ops[1].results[0]));
  shadowed.run->materialise("kept");
  EXPECT_TRUE(same((x[0] + x[0]).t(), kept));
}

TEST_F(ShadowTest, ChangesBehindTheDispatcherAreNotTakenForTheTrace) {
  const Tensors xy = {torch::randn({3}), torch::randn({3})};
  const auto exchanged = [](bool exchange) {
    return [exchange](const Tensors& a) -> Tensors {
      auto y = a[0] + a[1];
      auto z = a[0] - a[1];
      if (exchange) {
        y.set_data(z);
      }
      return {y * a[0]};
    };
  };
  EXPECT_EQ(divergence(exchanged(false), exchanged(false), xy), "");
  EXPECT_EQ(divergence(exchanged(true), exchanged(true), xy), "");
  EXPECT_THAT(
      divergence(exchanged(false), exchanged(true), xy),
      HasSubstr("an operand is another tensor"));
  EXPECT_THAT(
      divergence(exchanged(true), exchanged(false), xy),
      HasSubstr("an operand is another tensor"));
}

TEST_F(ShadowTest, ViewsOfOtherLibrariesAreAskedThemselves) {
  static int asked;
  asked = 0;
  static const auto library = [] {
    auto made = std::make_unique<torch::Library>(
        torch::Library::FRAGMENT, "capture_test", c10::nullopt, "", 0);
    made->def("first_row(Tensor(a) self) -> Tensor(a)");
    made->impl(
        "first_row",
        torch::dispatch(c10::DispatchKey::CPU, [](const at::Tensor& self) {
          ++asked;
          return self.narrow(0, 0, 1);
        }));
    return made;
  }();
  const Code code = [](const Tensors& a) -> Tensors {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("capture_test::first_row", "")
                               .typed<at::Tensor(const at::Tensor&)>();
    at::NoGradGuard no_grad;
    return {op.call(a[0]) * a[0]};
  };
  const Tensors x = {torch::randn({3, 3})};
  const auto captured = record(code, x);
  ASSERT_EQ(captured.reason(), "");
  EXPECT_EQ(asked, 1);
  EXPECT_TRUE(shadow(captured.trace(), code, x).run->complete());
  // Its kernel may look at data, and a shadow run must see that.
  EXPECT_EQ(asked, 2);
}

TEST_F(ShadowTest, ThreadsShadowOneTraceAtTheSameTime) {
  const auto w = torch::randn({4, 4}).requires_grad_();
  const Watched watched = {{"w", w}};
  const Code code = [&](const Tensors& a) -> Tensors {
    auto y = a[0];
    for (int i = 0; i < 20; ++i) {
      y = torch::relu(y.mm(w)).mul_(0.5).t().contiguous().t();
    }
    return {y};
  };
  const auto captured = record(code, {torch::randn({4, 4})}, watched);
  ASSERT_EQ(captured.reason(), "");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        const Tensors x = {torch::randn({4, 4})};
        if (t % 2 == 0) {
          EXPECT_TRUE(shadow(captured.trace(), code, x).run->complete());
        } else {
          const Code other = [&](const Tensors& a) -> Tensors {
            return {code(a)[0].neg()};
          };
          const auto turned = shadow(captured.trace(), other, x);
          EXPECT_TRUE(turned.run->materialised());
          EXPECT_TRUE(same(other(x), turned.results));
        }
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

} // namespace
} // namespace temper::capture
