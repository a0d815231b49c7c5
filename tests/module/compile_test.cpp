// compile(): every kind of callable, and the state that it is said to use.
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "dispatch/watch.h"
#include "module/watched_state.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using torch::Tensor;

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

TEST(CompileTest, Functions) {
  const auto x = torch::ones({3});
  auto by_name = temper::compile(add_one);
  auto by_pointer = temper::compile(&add_one, CompileOptions());
  auto wrapped = temper::compile(std::function<Tensor(const Tensor&)>(add_one));
  auto generic =
      temper::compile([](const auto& a, auto... b) { return (a + ... + b); });
  EXPECT_TRUE(by_name(x).equal(x + 1));
  EXPECT_TRUE(by_pointer(x).equal(x + 1));
  EXPECT_TRUE(wrapped(x).equal(x + 1));
  EXPECT_TRUE(generic(x).equal(x));
  EXPECT_TRUE(generic(x, 1, 2.5).equal(x + 3.5));
  EXPECT_EQ(temper::counters_of(generic).calls, 2);
}

TEST(CompileTest, MoveOnlyLambda) {
  auto f = temper::compile(
      [n = std::make_unique<int>(2)](const Tensor& x) { return x * *n; });
  const auto x = torch::ones({3});
  EXPECT_TRUE(f(x).equal(x * 2));
  const auto same = f;
  EXPECT_TRUE(same(x).equal(x * 2));
  EXPECT_EQ(temper::counters_of(f).calls, 2);
}

TEST(CompileTest, VoidAndReferenceResults) {
  auto fill = temper::compile([](Tensor& x) { x.fill_(3); });
  auto x = torch::ones({3});
  fill(x);
  EXPECT_TRUE(x.equal(torch::full({3}, 3.0)));

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
  EXPECT_TRUE(f(x, OnlyConverts()).equal(x * 4));
}

TEST(CompileTest, GeneratorArgumentRunsPlainly) {
  auto f = temper::compile([](const Tensor& x, torch::Generator generator) {
    return x + torch::rand(x.sizes(), generator);
  });
  auto generator = at::make_generator<at::CPUGeneratorImpl>();
  f(torch::ones({2}), generator);
  EXPECT_EQ(temper::counters_of(f).eager_total(), 1);
}

TEST(CompileTest, ModulesThatAreNotOurs) {
  Plain plain;
  const auto x = torch::ones({2, 3});
  auto by_holder = temper::compile(plain);
  auto by_pointer = temper::compile(plain.ptr(), CompileOptions());
  EXPECT_TRUE(by_holder(x).equal(plain(x)));
  EXPECT_TRUE(by_pointer(x).equal(plain(x)));
  EXPECT_EQ(&*by_holder, plain.get());
  EXPECT_EQ(by_holder->parameters().size(), 2U);
  EXPECT_EQ(by_holder.original().ptr(), plain.ptr());
  EXPECT_EQ(temper::counters_of(by_holder).calls, 1);
}

TEST(CompileTest, LibTorchsOwnModules) {
  const auto x = torch::ones({2, 3});
  torch::nn::Sequential sequential(
      torch::nn::Linear(3, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
  auto compiled = temper::compile(sequential);
  EXPECT_TRUE(compiled(x).equal(sequential->forward(x)));

  torch::nn::LSTM lstm(3, 4);
  auto recurrent = temper::compile(lstm);
  const auto sequence = torch::ones({5, 2, 3});
  auto [y, state] = recurrent(sequence);
  auto [z, next] = recurrent(sequence, state);
  EXPECT_EQ(z.sizes(), y.sizes());
  EXPECT_TRUE(
      std::get<0>(next).equal(std::get<0>(std::get<1>(lstm(sequence, state)))));

  torch::nn::MultiheadAttention attention(4, 2);
  auto attends = temper::compile(attention);
  const auto q = torch::ones({5, 2, 4});
  EXPECT_TRUE(
      std::get<0>(attends(q, q, q)).equal(std::get<0>(attention(q, q, q))));
}

TEST(CompileTest, ScriptModule) {
  torch::jit::Module script("Script");
  script.register_parameter("w", torch::full({3}, 2.0), /*is_buffer=*/false);
  script.define(R"(
    def forward(self, x, n: int):
      return (self.w * x + n, [x, x], {"n": n})
  )");
  auto f = temper::compile(script);
  const auto x = torch::ones({3});
  for (int i = 0; i < 5; ++i) {
    const auto result = f({x, 1});
    const auto& items = result.toTupleRef().elements();
    EXPECT_TRUE(items[0].toTensor().equal(torch::full({3}, 3.0)));
    EXPECT_TRUE(items[1].toTensorVector().at(1).is_same(x));
    EXPECT_EQ(items[2].toGenericDict().at("n").toInt(), 1);
  }
  EXPECT_EQ(f->parameters().size(), 1U);
  EXPECT_NE(f.explain().find("Script"), std::string::npos);
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
