// Case H16: two libraries of one process that use temper, each with a module
// type of its own under the same name.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>

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

} // namespace
