// A compiled module is the module it was: holder, copies, clones, state dict,
// serialised form, devices and dtypes; and options.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/env.h"
#include "base/log.h"
#include "support/counters.h"
#include "support/subprocess.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using torch::Tensor;

struct BlockImpl : temper::Module<BlockImpl> {
  torch::nn::Linear fc{nullptr};
  int64_t width;
  explicit BlockImpl(int64_t block_width = 4) : width(block_width) {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(width, width));
  }
  Tensor forward(const Tensor& x) {
    return torch::tanh(fc(x));
  }
};
TEMPER_MODULE(Block);

struct NetImpl : temper::Module<NetImpl> {
  Block first{nullptr};
  Block second{nullptr};
  Tensor scale;
  Tensor count;
  NetImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", Block(4));
    second = register_module("second", std::make_shared<BlockImpl>(4));
    scale = register_parameter("scale", torch::ones({4}));
    count = register_buffer("count", torch::zeros({1}));
  }
  Tensor forward(const Tensor& x, double factor = 1.0) {
    return second(first(x)) * scale * factor + count;
  }
};
TEMPER_MODULE(Net);

// One is traced, one shadowed, and two are left to the program alone.
constexpr int kCalls = 4;

std::vector<std::string> keys(const torch::nn::Module& module) {
  return module.named_parameters().keys();
}

TEST(ModuleTest, KeysAndFormStayTheSame) {
  Net net;
  const auto before = keys(*net);
  std::ostringstream text;
  text << *net;
  net->compile();
  net(torch::ones({2, 4}));
  EXPECT_EQ(keys(*net), before);
  EXPECT_EQ(net->named_modules().size(), 5U);
  std::ostringstream again;
  again << *net;
  EXPECT_EQ(again.str(), text.str());
  EXPECT_EQ(sizeof(Net), sizeof(std::shared_ptr<NetImpl>));
}

TEST(ModuleTest, SavedCompiledLoadsPlainAndBack) {
  torch::manual_seed(1);
  Net compiled;
  compiled->compile();
  const auto x = torch::randn({2, 4});
  const auto y = compiled->forward(x);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(compiled(x).equal(y));
  }
  std::stringstream stream;
  torch::save(compiled, stream);
  Net plain;
  torch::load(plain, stream);
  EXPECT_TRUE(plain(x).equal(y));
  std::stringstream back;
  torch::save(plain, back);
  Net other;
  other->compile();
  EXPECT_FALSE(other(x).equal(y));
  torch::load(other, back);
  for (int i = 1; i < kCalls; ++i) {
    EXPECT_TRUE(other(x).equal(y));
  }
  for (const auto& net : {compiled, other}) {
    EXPECT_COUNTERS(
        temper::counters_of(net),
        eager == 0 && program_calls == 3 && admissions == 1);
  }
}

TEST(ModuleTest, CloneIsCompiledAndHasItsOwnWeights) {
  Net net;
  net->compile(CompileOptions().max_graphs(3));
  const auto x = torch::randn({2, 4});
  const auto y = net->forward(x);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(y));
  }
  auto clone = std::dynamic_pointer_cast<NetImpl>(net->clone());
  ASSERT_TRUE(clone);
  EXPECT_TRUE(clone->is_compiled());
  EXPECT_EQ(temper::counters_of(*clone).calls, 0);
  EXPECT_EQ(clone->temper_state().site()->options().max_graphs(), 3);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE((*clone)(x).equal(y));
  }
  {
    torch::NoGradGuard no_grad;
    clone->scale.mul_(2);
  }
  EXPECT_FALSE((*clone)(x).equal(y));
  EXPECT_TRUE((*clone)(x).equal(y * 2));
  EXPECT_TRUE(net(x).equal(y));
  EXPECT_COUNTERS(
      temper::counters_of(net),
      calls == 5 && program_calls == 4 && admissions == 1);
  EXPECT_COUNTERS(
      temper::counters_of(*clone),
      calls == 6 && program_calls == 5 && admissions == 1);
}

TEST(ModuleTest, CopyOfAModuleIsCompiledAndSharesItsWeights) {
  Net net;
  net->compile(CompileOptions().max_graphs(3));
  const auto x = torch::randn({2, 4});
  const auto y = net->forward(x);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(y));
  }
  // As of torch's modules: the members are the same tensors and modules.
  const auto copy = std::make_shared<NetImpl>(*net);
  EXPECT_TRUE(copy->is_compiled());
  EXPECT_EQ(copy->temper_state().site()->options().max_graphs(), 3);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE((*copy)(x).equal(y));
  }
  {
    torch::NoGradGuard no_grad;
    copy->scale.mul_(2);
  }
  EXPECT_TRUE((*copy)(x).equal(y * 2));
  EXPECT_TRUE(net(x).equal(y * 2));
  for (const auto& counters :
       {temper::counters_of(net), temper::counters_of(*copy)}) {
    EXPECT_COUNTERS(
        counters,
        calls == 5 && eager == 0 && program_calls == 4 && admissions == 1);
  }
}

TEST(ModuleTest, CloneKeepsCompiledChildren) {
  Net net;
  net->first->compile();
  auto clone = std::dynamic_pointer_cast<NetImpl>(net->clone());
  EXPECT_FALSE(clone->is_compiled());
  EXPECT_TRUE(clone->first->is_compiled());
  EXPECT_FALSE(clone->second->is_compiled());
  EXPECT_NE(
      clone->first->temper_state().site(), net->first->temper_state().site());
  clone->first->decompile();
  EXPECT_TRUE(net->first->is_compiled());
}

TEST(ModuleTest, HoldersAreMadeAsTorchsAre) {
  const Block wide(8);
  EXPECT_EQ(wide->width, 8);
  const Block empty = nullptr;
  EXPECT_TRUE(empty.is_empty());
  const Block of_pointer = std::make_shared<BlockImpl>(2);
  EXPECT_EQ(of_pointer->width, 2);
  const Block copy(wide);
  EXPECT_EQ(copy.ptr(), wide.ptr());
  const Block new_one(*wide); // A copy of the module, as in torch.
  EXPECT_NE(new_one.ptr(), wide.ptr());
}

TEST(ModuleTest, CopyOfAHolderSharesTheModule) {
  Net net;
  const Net same = net; // NOLINT(performance-unnecessary-copy-initialization)
  net->compile();
  EXPECT_TRUE(same->is_compiled());
  EXPECT_EQ(same.ptr(), net.ptr());
}

TEST(ModuleTest, ModesDtypesAndTraining) {
  Net net;
  net->compile();
  net->eval();
  EXPECT_FALSE(net->first->is_training());
  net->to(torch::kDouble);
  for (int i = 0; i < kCalls; ++i) {
    const auto x = torch::randn({2, 4}, torch::kDouble);
    const auto y = net(x);
    EXPECT_EQ(y.dtype(), torch::kDouble);
    EXPECT_TRUE(y.equal(net->forward(x)));
    y.sum().backward();
  }
  net->to(torch::kFloat);
  net->train();
  for (int i = 0; i < kCalls; ++i) {
    const auto x = torch::randn({2, 4});
    const auto gradients = [&](const Tensor& y) {
      net->zero_grad();
      y.sum().backward();
      std::vector<Tensor> all;
      for (const auto& parameter : net->parameters()) {
        all.push_back(parameter.grad().clone());
      }
      return all;
    };
    const auto found = gradients(net(x));
    const auto expected = gradients(net->forward(x));
    for (size_t p = 0; p < expected.size(); ++p) {
      EXPECT_TRUE(found[p].equal(expected[p])) << p;
    }
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      eager == 0 && program_calls == 6 && admissions == 2 &&
          program_backwards == 6);
}

TEST(ModuleTest, DefaultArgumentsOfForward) {
  Net net;
  net->compile();
  const auto x = torch::ones({2, 4});
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(net->forward(x)));
    EXPECT_TRUE(net(x, 2.0).equal(net->forward(x, 2.0)));
    EXPECT_TRUE(net(x, 2).equal(net->forward(x, 2))); // An int for a double.
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      eager == 0 && program_calls == 9 && admissions == 3);
}

TEST(ModuleTest, InsideSequentialForwardIsRaw) {
  Block block(4);
  block->compile();
  torch::nn::Sequential sequential(block, torch::nn::ReLU());
  const auto x = torch::ones({2, 4});
  for (int i = 0; i < kCalls; ++i) {
    sequential->forward(x);
  }
  EXPECT_EQ(temper::counters_of(block).calls, 0);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(block(x).equal(block->forward(x)));
  }
  EXPECT_COUNTERS(
      temper::counters_of(block),
      calls == 4 && program_calls == 3 && admissions == 1);
}

TEST(ModuleTest, CompileTwiceAndDecompile) {
  Net net;
  EXPECT_FALSE(net->is_compiled());
  net->compile();
  const auto* site = net->temper_state().site();
  const auto x = torch::ones({2, 4});
  net(x);
  net->compile();
  EXPECT_EQ(net->temper_state().site(), site);
  EXPECT_EQ(temper::counters_of(net).calls, 1);
  net->compile(CompileOptions().backend("eager"));
  EXPECT_EQ(net->temper_state().site()->options().backend(), "eager");
  net(x);
  net->decompile();
  EXPECT_FALSE(net->is_compiled());
  net(x);
  EXPECT_EQ(temper::counters_of(net).calls, 0);
  EXPECT_NE(temper::explain(net).find("not compiled"), std::string::npos);
}

TEST(ModuleTest, ExplainNamesTheModule) {
  Net net;
  net->compile();
  net(torch::ones({2, 4}));
  EXPECT_NE(temper::explain(net).find("'Net'"), std::string::npos);
  EXPECT_EQ(temper::explain(net), net->explain());
}

TEST(ModuleTest, CompiledButNeverCalledSaysSo) {
  temper::base::LogCapture log;
  {
    Net net;
    net->compile();
    net->forward(torch::ones({2, 4}));
    EXPECT_NE(net->explain().find("never called"), std::string::npos);
    const auto clone = net->clone(); // Nobody asked for this one.
  }
  EXPECT_TRUE(log.saw("'Net' is compiled, but was never called itself"));
  EXPECT_EQ(log.lines().size(), 1U);
}

TEST(ModuleTest, CalledModuleIsSilent) {
  temper::base::LogCapture log;
  {
    Net net;
    net->compile();
    net(torch::ones({2, 4}));
  }
  EXPECT_TRUE(log.lines().empty());
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const temper::Error& error) {
    return error.what_without_backtrace();
  }
  return "no error";
}

TEST(ModuleTest, WrongOptionsFailInCompile) {
  Net net;
  // Other tests of this process register backends.
  const auto error =
      error_of([&] { net->compile(CompileOptions().backend("fast")); });
  EXPECT_EQ(
      error.find(
          "temper: cannot compile 'Net': there is no backend 'fast', expected "
          "'aten', "),
      0U)
      << error;
  EXPECT_NE(
      error.find("'eager'. Set it with CompileOptions().backend(\"aten\")."),
      std::string::npos)
      << error;
  EXPECT_FALSE(net->is_compiled());
  EXPECT_NE(
      error_of([&] {
        net->compile(CompileOptions().max_graphs(0));
      }).find("option max_graphs is 0, expected at least 1"),
      std::string::npos);
  EXPECT_NE(
      error_of([&] {
        net->compile(CompileOptions().max_signatures(-1));
      }).find("max_signatures is -1"),
      std::string::npos);
  net->compile();
  EXPECT_THROW(net->compile(CompileOptions().backend("")), temper::Error);
  EXPECT_EQ(net->temper_state().site()->options().backend(), "aten");
  net(torch::ones({2, 4}));
}

TEST(ModuleTest, Devices) {
  EXPECT_TRUE(temper::is_compile_supported(torch::kCPU));
  EXPECT_TRUE(temper::is_compile_supported(torch::kCPU, "eager"));
  EXPECT_TRUE(temper::is_compile_supported(torch::Device("cuda:1")));
  EXPECT_FALSE(temper::is_compile_supported(torch::kMeta));
  EXPECT_THROW(
      temper::is_compile_supported(torch::kCPU, "fast"), temper::Error);
}

TEST(ModuleTest, DevicesHaveReasons) {
  EXPECT_EQ(
      temper::is_compile_supported(torch::kCPU).reason,
      "backend 'aten' runs ATen's own operators");
  EXPECT_EQ(
      temper::is_compile_supported(torch::Device("cuda:1"), "eager").reason,
      "backend 'eager' runs ATen's own operators");
  EXPECT_EQ(
      temper::is_compile_supported(torch::kMeta).reason,
      "tensors on 'meta' have no values to compute");
  // Other tests of this process register backends.
  const auto error = error_of(
      [] { temper::is_compile_supported(torch::Device("cuda:1"), "fast"); });
  EXPECT_EQ(
      error.find("temper: cannot compile for 'cuda:1': there is no backend "
                 "'fast', expected 'aten', "),
      0U)
      << error;
}

// Not supported is no error of its own: ATen's operators refuse to mix devices,
// as in eager, and what is compiled for the CPU stays.
TEST(ModuleTest, CallsOnMetaTensors) {
  const auto x = torch::ones({2, 4});
  const auto nothing = x.to(torch::kMeta);
  Net net;
  net->compile();
  const auto y = net->forward(x);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(y));
    EXPECT_THROW(net->forward(nothing), c10::Error);
    EXPECT_THROW(net(nothing), c10::Error);
  }
  EXPECT_COUNTERS(
      temper::counters_of(net),
      program_calls == 3 && admissions == 1 && traces == 4 &&
          reasons ==
              temper::testing::Reasons{{"the code threw in each trace", 1}});
  // Where all are there, it is a call like others.
  auto f = temper::compile([](const Tensor& a, const Tensor& b) {
    return (a.matmul(b) * 2).tanh();
  });
  for (int i = 0; i < kCalls; ++i) {
    const auto w = torch::ones({4, 3}, torch::kMeta).requires_grad_();
    const auto z = f(nothing, w);
    EXPECT_TRUE(z.is_meta());
    EXPECT_EQ(z.sizes(), (std::vector<int64_t>{2, 3}));
    z.sum().backward();
    EXPECT_TRUE(w.grad().is_meta());
    EXPECT_EQ(w.grad().sizes(), w.sizes());
  }
  EXPECT_COUNTERS(
      f.counters(),
      eager == 0 && program_calls == 3 && admissions == 1 &&
          program_backwards == 3);
}

TEST(ModuleTest, DisabledMeansPlainCalls) {
  setenv("TEMPER_DISABLE", "1", 1);
  temper::base::reread_environment();
  Net net;
  net->compile();
  EXPECT_TRUE(net->is_compiled());
  net(torch::ones({2, 4}));
  auto f = temper::compile([](const Tensor& x) { return x + 1; });
  EXPECT_TRUE(f(torch::ones({1})).equal(torch::full({1}, 2.0)));
  EXPECT_EQ(temper::counters_of(net).calls, 0);
  EXPECT_EQ(temper::counters_of(f).calls, 0);
  EXPECT_NE(net->explain().find("TEMPER_DISABLE"), std::string::npos);
  EXPECT_THROW(net->compile(CompileOptions().backend("fast")), temper::Error);
  unsetenv("TEMPER_DISABLE");
  temper::base::reread_environment();
}

// Called once more when it is destroyed, after main.
struct CallsAtExit {
  explicit CallsAtExit(Net called) : net(std::move(called)) {}
  CallsAtExit(const CallsAtExit&) = delete;
  CallsAtExit& operator=(const CallsAtExit&) = delete;
  ~CallsAtExit() {
    // Not backward: autograd's own thread state is gone by then.
    const auto x = torch::ones({2, 4});
    const auto y = net(x);
    // An exit code is all that can still be seen.
    if (!y.equal(net->forward(x)) ||
        temper::counters_of(net).program_calls != 3) {
      std::_Exit(1);
    }
  }
  mutable Net net;
};

TEST(ModuleDeathTest, OutlivesMain) {
  EXPECT_ENDS_WELL({
    Net net;
    net->compile();
    for (int i = 0; i < 3; ++i) {
      net(torch::ones({2, 4})).sum().backward();
    }
    EXPECT_EQ(temper::counters_of(net).program_backwards, 2);
    // After what LibTorch itself has made by now.
    static const CallsAtExit at_exit{net};
  });
}

TEST(ModuleTest, CreateCompileRunDestroy) {
  const auto x = torch::ones({2, 4});
  std::weak_ptr<NetImpl> last;
  for (int i = 0; i < 200; ++i) {
    Net net;
    net->compile();
    net(x).sum().backward();
    last = net.ptr();
  }
  EXPECT_TRUE(last.expired());
}

TEST(ModuleTest, ManyThreadsCallOne) {
  Net net;
  net->compile();
  const auto x = torch::ones({2, 4});
  const auto y = net->forward(x);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 20; ++k) {
        EXPECT_TRUE(net(x).equal(y));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(temper::counters_of(net).calls, 80);
  // What threads have found out holds for all.
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(y));
  }
  const auto before = temper::counters_of(net);
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_TRUE(net(x).equal(y));
  }
  EXPECT_COUNTERS(
      temper::testing::subtract(temper::counters_of(net), before),
      calls == 4 && program_calls == 4);
}

// A subclass of a compiled class: the holder calls the subclass's forward, the
// base's surface the base's.
struct BaseImpl : temper::Module<BaseImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x + 1;
  }
  Tensor through_base(const Tensor& x) {
    return (*this)(x);
  }
};
struct DerivedImpl : BaseImpl {
  double gain = 3;
  Tensor forward(const Tensor& x) {
    return x * gain;
  }
};
TEMPER_MODULE(Derived);

TEST(ModuleTest, SubclassOfACompiledClass) {
  Derived derived;
  derived->compile();
  const auto x = torch::ones({2});
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(derived(x).equal(x * 3));
    EXPECT_TRUE(derived->through_base(x).equal(x + 1));
  }
  EXPECT_COUNTERS(
      temper::counters_of(derived),
      calls == 10 && eager == 0 && program_calls == 8 && admissions == 2);
  EXPECT_NE(derived->explain().find("'Derived'"), std::string::npos);
}

// A name of the surface that a module takes for itself is found out.
struct HidesField : temper::Module<HidesField> {
  int compile = 0;
};
struct HidesFunction : temper::Module<HidesFunction> {
  void explain();
};
struct HidesCall : temper::Module<HidesCall> {
  int operator()(int);
};
struct HidesPrivately : temper::Module<HidesPrivately> {
 private:
  [[maybe_unused]] bool is_compiled = false;
};
struct HidesNothing : temper::Module<HidesNothing> {
  int compile_ = 0;
};
template <class Impl>
constexpr bool kWhole =
    temper::detail::kSurfaceIsWhole<Impl, temper::Module<Impl>>;
static_assert(!kWhole<HidesField>);
static_assert(!kWhole<HidesFunction>);
static_assert(!kWhole<HidesCall>);
static_assert(!kWhole<HidesPrivately>);
static_assert(kWhole<HidesNothing>);
static_assert(kWhole<NetImpl>);

} // namespace
