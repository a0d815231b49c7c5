// compile(): every kind of callable, and the state that it is said to use.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "dispatch/watch.h"
#include "module/watched_state.h"
#include "support/counters.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using temper::testing::Reasons;
using torch::Tensor;

// One is traced, one shadowed, and two are left to the program alone.
constexpr int kCalls = 4;
constexpr std::string_view kUnwatchedCapture =
    "bytes 0..7 of 'the function's captures' point to memory whose content "
    "can't be watched";

Tensor add_one(const Tensor& x) {
  return x + 1;
}

// A module of a user who knows nothing of temper.
struct PlainImpl : torch::nn::Module {
  torch::nn::Linear fc{nullptr};
  PlainImpl() {
    fc = register_module("fc", torch::nn::Linear(3, 3));
  }
  Tensor forward(const Tensor& x) {
    return fc(x) * 2;
  }
};
TORCH_MODULE(Plain);

// Results, and the gradients of their sum, of a step through `net` itself and
// of one through what was compiled of it.
template <class Eager, class Compiled>
void expect_same_step(
    torch::nn::Module& net,
    const Eager& eager,
    const Compiled& compiled) {
  const auto step = [&net](const auto& run) {
    net.zero_grad();
    std::vector<Tensor> seen = run();
    Tensor loss = torch::zeros({});
    for (const auto& result : seen) {
      loss = loss + result.sin().sum();
    }
    loss.backward();
    for (const auto& parameter : net.parameters()) {
      seen.push_back(parameter.grad().clone());
    }
    return seen;
  };
  const auto expected = step(eager);
  const auto found = step(compiled);
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(found[i].equal(expected[i])) << i;
  }
}

TEST(CompileTest, Functions) {
  const auto x = torch::ones({3});
  auto by_name = temper::compile(add_one);
  auto by_pointer = temper::compile(&add_one, CompileOptions());
  auto wrapped = temper::compile(std::function<Tensor(const Tensor&)>(add_one));
  auto generic =
      temper::compile([](const auto& a, auto... b) { return (a + ... + b); });
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(by_name(x).equal(x + 1));
    EXPECT_TRUE(by_pointer(x).equal(x + 1));
    EXPECT_TRUE(wrapped(x).equal(x + 1));
    EXPECT_TRUE(generic(x).equal(x));
    EXPECT_TRUE(generic(x, 1, 2.5).equal(x + 3.5));
  }
  EXPECT_COUNTERS(
      by_name.counters(), eager == 0 && program_calls == 3 && admissions == 1);
  EXPECT_COUNTERS(
      by_pointer.counters(),
      eager == 0 && program_calls == 3 && admissions == 1);
  EXPECT_COUNTERS(
      wrapped.counters(), eager == 0 && program_calls == 3 && admissions == 1);
  // By the types of the arguments.
  EXPECT_COUNTERS(
      generic.counters(), eager == 0 && program_calls == 6 && admissions == 2);
}

TEST(CompileTest, MoveOnlyLambda) {
  auto f = temper::compile(
      [n = std::make_unique<int>(2)](const Tensor& x) { return x * *n; });
  const auto x = torch::ones({3});
  const auto same = f;
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(f(x).equal(x * 2));
    EXPECT_TRUE(same(x).equal(x * 2));
  }
  // What the pointer leads to can't be watched.
  EXPECT_COUNTERS(
      f.counters(), eager == 8 && traces == 0 && because(kUnwatchedCapture));
}

TEST(CompileTest, VoidAndReferenceResults) {
  auto fill = temper::compile([](Tensor& x) { x.fill_(3); });
  for (int i = 0; i < kCalls; ++i) {
    auto x = torch::ones({3});
    fill(x);
    EXPECT_TRUE(x.equal(torch::full({3}, 3.0)));
  }
  EXPECT_COUNTERS(
      fill.counters(), eager == 0 && program_calls == 3 && admissions == 1);

  Tensor kept = torch::ones({2});
  auto reference = temper::compile([&]() -> Tensor& { return kept; }, kept);
  EXPECT_EQ(&reference(), &kept);
  EXPECT_EQ(
      temper::counters_of(reference).eager_calls.at(
          "the result is a reference; return it by value"),
      1);
  reference.set_options(CompileOptions().fullgraph(true));
  EXPECT_THROW(reference(), temper::Error);
}

TEST(CompileTest, ViewsOfMemoryAsArguments) {
  auto f = temper::compile(
      [](const Tensor& x, at::IntArrayRef shape, std::string_view how) {
        return how == "view" ? x.view(shape) : x.reshape(shape).clone();
      });
  const auto x = torch::ones({6});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(f(x, std::vector<int64_t>{2, 3}, "view").is_alias_of(x));
    EXPECT_FALSE(
        f(x, at::IntArrayRef({3, 2}), std::string("copy")).is_alias_of(x));
  }
  EXPECT_COUNTERS(
      f.counters(), eager == 0 && program_calls == 8 && admissions == 2);
}

TEST(CompileTest, ArgumentsOfTheirOwnTypeBecomeTheParameters) {
  struct OnlyConverts {
    operator double() const {
      return 4.0;
    }

   private:
    [[maybe_unused]] void* p_ = nullptr;
  };
  auto f = temper::compile(
      [](const Tensor& x, double factor) { return x * factor; });
  const auto x = torch::ones({2});
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(f(x, OnlyConverts()).equal(x * 4));
  }
  EXPECT_COUNTERS(
      f.counters(), eager == 0 && program_calls == 3 && admissions == 1);
}

TEST(CompileTest, GeneratorArgumentRunsPlainly) {
  auto f = temper::compile([](const Tensor& x, torch::Generator generator) {
    return x + torch::rand(x.sizes(), generator);
  });
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  const auto same = generator.clone();
  for (int i = 0; i < kCalls; ++i) {
    const auto expected = torch::ones({2}) + torch::rand({2}, same);
    EXPECT_TRUE(f(torch::ones({2}), generator).equal(expected));
  }
  EXPECT_COUNTERS(
      f.counters(),
      reasons == Reasons{{"an argument holds a torch::Generator", 4}});
}

TEST(CompileTest, ModulesThatAreNotOurs) {
  Plain plain;
  const auto x = torch::ones({2, 3});
  auto by_holder = temper::compile(plain);
  auto by_pointer = temper::compile(plain.ptr(), CompileOptions());
  for (int i = 0; i < kCalls; ++i) {
    const auto eager = [&] { return std::vector<Tensor>{plain(x)}; };
    expect_same_step(
        *plain, eager, [&] { return std::vector<Tensor>{by_holder(x)}; });
    expect_same_step(
        *plain, eager, [&] { return std::vector<Tensor>{by_pointer(x)}; });
  }
  EXPECT_EQ(&*by_holder, plain.get());
  EXPECT_EQ(by_holder->parameters().size(), 2U);
  EXPECT_EQ(by_holder.original().ptr(), plain.ptr());
  EXPECT_COUNTERS(
      by_holder.counters(),
      eager == 0 && program_calls == 3 && admissions == 1 &&
          program_backwards == 3);
  EXPECT_COUNTERS(
      by_pointer.counters(),
      eager == 0 && program_calls == 3 && admissions == 1 &&
          program_backwards == 3);
}

TEST(CompileTest, SequentialOfLibTorch) {
  torch::manual_seed(1);
  torch::nn::Sequential sequential(
      torch::nn::Linear(3, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
  auto compiled = temper::compile(sequential);
  for (int i = 0; i < kCalls; ++i) {
    const auto x = torch::randn({2, 3});
    expect_same_step(
        *sequential,
        [&] { return std::vector<Tensor>{sequential->forward(x)}; },
        [&] { return std::vector<Tensor>{compiled(x)}; });
  }
  EXPECT_COUNTERS(
      compiled.counters(),
      eager == 0 && program_calls == 3 && admissions == 1 &&
          program_backwards == 3);
}

TEST(CompileTest, AnyModuleInALambda) {
  torch::manual_seed(1);
  torch::nn::Linear linear(3, 2);
  torch::nn::AnyModule any(linear);
  auto f = temper::compile(
      [&any](const Tensor& x) { return any.forward(x); }, linear);
  for (int i = 0; i < kCalls; ++i) {
    const auto x = torch::randn({2, 3});
    EXPECT_TRUE(f(x).equal(linear(x)));
  }
  // It owns a copy of the holder, on the heap.
  EXPECT_COUNTERS(
      f.counters(), eager == 4 && traces == 0 && because(kUnwatchedCapture));
}

TEST(CompileTest, RecurrentNetOfLibTorch) {
  torch::manual_seed(1);
  torch::nn::LSTM lstm(3, 4);
  auto compiled = temper::compile(lstm);
  const auto list = [](const auto& result) {
    const auto& [y, state] = result;
    return std::vector<Tensor>{y, std::get<0>(state), std::get<1>(state)};
  };
  for (int i = 0; i < kCalls; ++i) {
    const auto x = torch::randn({5, 2, 3});
    expect_same_step(
        *lstm,
        [&] { return list(lstm->forward(x)); },
        [&] { return list(compiled(x)); });
    const auto state =
        std::make_tuple(torch::randn({1, 2, 4}), torch::randn({1, 2, 4}));
    expect_same_step(
        *lstm,
        [&] { return list(lstm->forward(x, state)); },
        [&] { return list(compiled(x, state)); });
  }
  EXPECT_COUNTERS(
      compiled.counters(),
      eager == 0 && program_calls == 6 && admissions == 2 &&
          program_backwards == 6);
}

TEST(CompileTest, MultiheadAttentionOfLibTorch) {
  torch::manual_seed(1);
  torch::nn::MultiheadAttention attention(4, 2);
  auto attends = temper::compile(attention);
  const auto list = [](const auto& result) {
    return std::vector<Tensor>{std::get<0>(result), std::get<1>(result)};
  };
  for (int i = 0; i < kCalls; ++i) {
    const auto q = torch::randn({5, 2, 4});
    expect_same_step(
        *attention,
        [&] { return list(attention(q, q, q)); },
        [&] { return list(attends(q, q, q)); });
  }
  EXPECT_COUNTERS(
      attends.counters(),
      eager == 0 && program_calls == 3 && admissions == 1 &&
          program_backwards == 3);
}

TEST(CompileTest, ScriptModule) {
  torch::jit::Module script("Script");
  script.register_parameter("w", torch::full({3}, 2.0), /*is_buffer=*/false);
  script.define(R"(
    def forward(self, x, n: int):
      return (self.w * x + n, [x, x], {"n": n})
  )");
  auto f = temper::compile(script);
  for (int i = 0; i < kCalls; ++i) {
    const auto x = torch::full({3}, 1.0 + i);
    const auto result = f({x, 1});
    const auto& items = result.toTupleRef().elements();
    EXPECT_TRUE(items[0].toTensor().equal(x * 2 + 1));
    EXPECT_TRUE(items[1].toTensorVector().at(1).is_same(x));
    EXPECT_EQ(items[2].toGenericDict().at("n").toInt(), 1);
  }
  EXPECT_EQ(f->parameters().size(), 1U);
  EXPECT_NE(f.explain().find("Script"), std::string::npos);
  EXPECT_COUNTERS(
      f.counters(), eager == 0 && program_calls == 3 && admissions == 1);
}

// The state of a function, as its call site sees it.
template <class F, class... State>
class Seen {
 public:
  explicit Seen(F f, State&... state)
      : box_(std::make_shared<temper::detail::FunctionBox<F>>(
            std::move(f),
            CompileOptions(),
            std::vector<temper::detail::Watched>{})) {
    temper::module::WatchedState seen(watch_);
    box_->describe(temper::detail::watch_all(state...), seen);
    snapshot_ = watch_.take();
  }
  bool matches() const {
    return watch_.matches(*snapshot_);
  }
  std::string unguardable() const {
    return snapshot_->unguardable();
  }
  std::string difference() const {
    return watch_.difference(*snapshot_);
  }
  bool finds(const Tensor& tensor) const {
    return snapshot_->find(tensor).has_value();
  }

 private:
  std::shared_ptr<temper::detail::FunctionBox<F>> box_;
  temper::dispatch::Watch watch_;
  std::shared_ptr<const temper::dispatch::Snapshot> snapshot_;
};

TEST(CompileTest, VariablesCapturedByReferenceAreWatched) {
  auto w = torch::ones({3});
  double scale = 2.0;
  torch::nn::Linear net(3, 3);
  auto f = [&](const Tensor& x) { return net(x) * w * scale; };
  Seen seen(f, net, w, scale);
  EXPECT_EQ(seen.unguardable(), "");
  EXPECT_TRUE(seen.matches()) << seen.difference();
  EXPECT_TRUE(seen.finds(w));
  EXPECT_TRUE(seen.finds(net->weight));
  scale = 3.0;
  EXPECT_FALSE(seen.matches());
  scale = 2.0;
  EXPECT_TRUE(seen.matches());
  const auto old = w;
  w = w * 2;
  EXPECT_FALSE(seen.matches());
  w = old;
  EXPECT_TRUE(seen.matches());
  net = torch::nn::Linear(3, 3);
  EXPECT_FALSE(seen.matches());
}

TEST(CompileTest, VariablesCapturedByValueMayBeGone) {
  const auto make = [] {
    torch::nn::Linear net(3, 3);
    auto w = torch::ones({3});
    auto f = [net, w](const Tensor& x) mutable { return net(x) * w; };
    return Seen(f, net, w);
  };
  const auto seen = make();
  EXPECT_EQ(seen.unguardable(), "");
  EXPECT_TRUE(seen.matches());
}

Tensor& global_factor() {
  static Tensor factor = torch::ones({3});
  return factor;
}

TEST(CompileTest, GlobalsAreWatchedButNotLocalsThatAFunctionCannotUse) {
  const auto make = [] {
    double unused = 1.0;
    return Seen(
        [](const Tensor& x) { return x * global_factor(); },
        global_factor(),
        unused);
  };
  const auto seen = make();
  EXPECT_EQ(seen.unguardable(), "");
  EXPECT_TRUE(seen.matches()) << seen.difference();
  EXPECT_TRUE(seen.finds(global_factor()));
  global_factor() = torch::zeros({3});
  EXPECT_FALSE(seen.matches());
}

TEST(CompileTest, MembersReachedThroughThis) {
  struct Owner {
    Tensor w = torch::ones({3});
    int n = 1;
    auto step() {
      auto f = [this](const Tensor& x) { return x * w * n; };
      return Seen(f, w, n);
    }
  };
  Owner owner;
  const auto seen = owner.step();
  EXPECT_TRUE(seen.matches());
  owner.n = 2;
  EXPECT_FALSE(seen.matches());
}

TEST(CompileTest, UndeclaredStateIsNotVouchedFor) {
  std::vector<double> table{1.0, 2.0};
  auto f = [&](const Tensor& x) { return x * table[0]; };
  EXPECT_NE(Seen(f).unguardable(), "");
  Seen declared(f, table);
  EXPECT_EQ(declared.unguardable(), "");
  table[0] = 3.0;
  EXPECT_FALSE(declared.matches());
}

} // namespace
