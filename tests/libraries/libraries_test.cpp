// Case H16: two libraries of one process that use temper, each with a module
// type of its own under the same name.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include <temper/temper.h>

#include "library.h"

namespace {

// Loaded once, for good.
const Library& load(const char* path) {
  void* const handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw std::runtime_error(dlerror());
  }
  auto* const get =
      reinterpret_cast<const Library* (*)()>(dlsym(handle, kLibrarySymbol));
  return *get();
}
const Library& small() {
  static const Library& library = load(TEMPER_TEST_SMALL);
  return library;
}
const Library& large() {
  static const Library& library = load(TEMPER_TEST_LARGE);
  return library;
}

// Three calls before and three after a field has changed.
void expect_compiled(const Library& library) {
  const torch::NoGradGuard no_grad;
  const auto net = library.make();
  library.compile(*net);
  const auto x = torch::rand({3, 2});
  for (int change = 0; change < 2; ++change) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(library.call(*net, x).equal(library.forward(*net, x)));
    }
    library.change(*net);
    EXPECT_FALSE(library.call(*net, x).equal(x));
    EXPECT_TRUE(library.call(*net, x).equal(library.forward(*net, x)));
  }
  const auto counters = library.counters(*net);
  EXPECT_EQ(counters.calls, 10);
  EXPECT_EQ(counters.traces, 3);
  EXPECT_EQ(counters.program_calls, 7);
  EXPECT_EQ(counters.eager_total(), 0);
}

TEST(CasesH, H16_TwoLibrariesWithATypeOfTheSameName) {
  expect_compiled(small());
  expect_compiled(large());
  expect_compiled(small());
  const auto one = small().make();
  const auto other = large().make();
  EXPECT_STREQ(typeid(*one).name(), typeid(*other).name());
  EXPECT_NE(&typeid(*one), &typeid(*other));
}

// One module holds both, and is compiled as a whole.
struct BothImpl : temper::Module<BothImpl> {
  std::shared_ptr<torch::nn::Module> first, second;
  BothImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", small().make());
    second = register_module("second", large().make());
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return large().forward(*second, small().forward(*first, x));
  }
};
TEMPER_MODULE(Both);

TEST(CasesH, H16_OneModuleHoldsModulesOfBoth) {
  const torch::NoGradGuard no_grad;
  Both both;
  both->compile();
  const auto x = torch::rand({3, 2});
  const auto check = [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(both(x).equal(both->forward(x)));
    }
  };
  check();
  small().change(*both->first);
  check();
  large().change(*both->second); // Its last bytes, among others.
  check();
  const auto counters = temper::counters_of(both);
  EXPECT_EQ(counters.traces, 3) << temper::explain(both);
  EXPECT_EQ(counters.program_calls, 6) << temper::explain(both);
}

// Of a loss that is made of `y`, by the leaves.
std::vector<torch::Tensor> gradients(
    const torch::Tensor& y,
    const std::vector<torch::Tensor>& leaves) {
  return torch::autograd::grad({y.pow(3).sum()}, leaves);
}

void expect_equal(
    const std::vector<torch::Tensor>& found,
    const std::vector<torch::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_TRUE(torch::equal(found[i], expected[i])) << i;
  }
}

// Leaves that a backward through `module` reaches.
std::vector<torch::Tensor> leaves_of(
    const torch::nn::Module& module,
    const torch::Tensor& x) {
  auto leaves = module.parameters();
  leaves.push_back(x);
  return leaves;
}

TEST(CasesH, H16_ABackwardThroughCompiledModulesOfBoth) {
  const auto scale = small().make();
  const auto net = large().make();
  small().compile(*scale);
  large().compile(*net);
  for (int i = 0; i < 8; ++i) {
    if (i == 4) {
      small().change(*scale);
    }
    const auto x = torch::rand({3, 2}).requires_grad_();
    const auto leaves = leaves_of(*net, x);
    const auto expected = gradients(
        large().forward(
            *net, small().forward(*scale, large().forward(*net, x))),
        leaves);
    expect_equal(
        gradients(
            large().call(*net, small().call(*scale, large().call(*net, x))),
            leaves),
        expected);
  }
  const auto of_scale = small().counters(*scale);
  EXPECT_EQ(of_scale.calls, 8);
  EXPECT_EQ(of_scale.traces, 2);
  EXPECT_EQ(of_scale.program_calls, 6);
  EXPECT_EQ(of_scale.program_backwards, 6);
  EXPECT_EQ(of_scale.eager_total(), 0);
  const auto of_net = large().counters(*net);
  EXPECT_EQ(of_net.calls, 16);
  EXPECT_EQ(of_net.traces, 2);
  EXPECT_EQ(of_net.program_calls, 14);
  EXPECT_EQ(of_net.program_backwards, 14); // Of each of its calls.
  EXPECT_EQ(of_net.eager_total(), 0);
}

TEST(CasesH, H16_ABackwardThroughOneModuleThatHoldsBoth) {
  Both both;
  both->compile();
  for (int i = 0; i < 8; ++i) {
    if (i == 4) {
      large().change(*both->second);
    }
    const auto x = torch::rand({3, 2}).requires_grad_();
    const auto leaves = leaves_of(*both, x);
    const auto expected = gradients(both->forward(x), leaves);
    expect_equal(gradients(both(x), leaves), expected);
  }
  const auto counters = temper::counters_of(both);
  EXPECT_EQ(counters.calls, 8) << temper::explain(both);
  EXPECT_EQ(counters.traces, 2) << temper::explain(both);
  EXPECT_EQ(counters.program_calls, 6) << temper::explain(both);
  EXPECT_EQ(counters.program_backwards, 6) << temper::explain(both);
  EXPECT_EQ(counters.eager_total(), 0) << temper::explain(both);
}

} // namespace
