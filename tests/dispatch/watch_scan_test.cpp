// What fields and captures point to: followed, constant or opaque.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cstring>
#include <map>
#include <thread>

#include "dispatch/known_modules.h"
#include "dispatch/watch.h"
#include "dispatch/watch_memory.h"

namespace temper::dispatch {
namespace {

using testing::HasSubstr;
using torch::nn::Linear;

torch::Tensor twice(torch::Tensor x) {
  return x * 2;
}
torch::Tensor thrice(torch::Tensor x) {
  return x * 3;
}

struct Strategy {
  virtual ~Strategy() = default;
  virtual double factor() const = 0;
};
struct Fixed : Strategy {
  double value = 2;
  double factor() const override {
    return value;
  }
};

// As temper::Module: unused bytes (of an empty optional) hold no remains.
template <typename Derived>
struct Clean : torch::nn::Module {
  Clean() {
    auto* base = reinterpret_cast<std::byte*>(this);
    detail::clear_memory(base + sizeof(Clean), sizeof(Derived) - sizeof(Clean));
    record_module_type(
        typeid(Derived),
        {sizeof(Derived), detail::padding_of<Derived>(), nullptr});
  }
};

// A module with one field of this type, and a child.
template <typename T>
struct WithImpl : Clean<WithImpl<T>> {
  double before = 1;
  T field{};
  double after = 2;
  Linear fc{nullptr};

  WithImpl() {
    fc = this->register_module("fc", Linear(2, 2));
  }
};

template <typename T>
struct Watched {
  Watched() {
    watch.add_module(module);
  }
  explicit Watched(T field) : Watched() {
    module.field = std::move(field);
    take();
  }
  void take() {
    then = watch.take();
  }
  const std::string& unguardable() const {
    return then->unguardable();
  }
  bool same() const {
    EXPECT_EQ(watch.difference(*then).empty(), watch.matches(*then));
    return watch.matches(*then);
  }

  WithImpl<T> module;
  Watch watch;
  std::shared_ptr<const Snapshot> then;
};

TEST(WatchScan, NumbersAreNotPointers) {
  struct Numbers {
    double d[6] = {0.0, -0.0, 1e-300, 3.14, 1e300, std::nan("")};
    int64_t time = 1764471845000000000;
    int64_t large = int64_t{1} << 46;
    int32_t pair[2] = {3, 5};
    float f[2] = {1.5F, -2.5F};
    std::complex<double> c{1, 2};
    uint64_t all = ~uint64_t{0};
    bool flags[8] = {true, true, true, true, true, true, true, true};
  };
  Watched<Numbers> watched{Numbers()};
  EXPECT_EQ(watched.unguardable(), "");
  watched.module.field.pair[1] = 6;
  EXPECT_FALSE(watched.same());
  watched.module.field.pair[1] = 5;
  EXPECT_TRUE(watched.same());
  watched.module.field.d[5] = 0;
  EXPECT_FALSE(watched.same());
}

TEST(WatchScan, AVectorOfNumbersIsOpaque) {
  Watched<std::vector<double>> watched({1.0, 2.0});
  EXPECT_THAT(watched.unguardable(), HasSubstr("bytes "));
  EXPECT_THAT(watched.unguardable(), HasSubstr("of 'WithImpl<"));
  EXPECT_THAT(watched.unguardable(), HasSubstr("TEMPER_FIELDS(...)"));
  Watched<std::vector<double>> zeros({0.0, 0.0});
  EXPECT_NE(zeros.unguardable(), "");
  Watched<std::vector<int64_t>> integers({1, 2, 3});
  EXPECT_NE(integers.unguardable(), "");
  Watched<std::vector<double>> empty;
  empty.take();
  EXPECT_EQ(empty.unguardable(), "");
  empty.module.field.push_back(1);
  EXPECT_FALSE(empty.same());
}

TEST(WatchScan, AShortStringIsWatchedByValueALongOneIsOpaque) {
  Watched<std::string> watched("relu");
  EXPECT_EQ(watched.unguardable(), "");
  watched.module.field = "gelu";
  EXPECT_FALSE(watched.same());
  watched.module.field = "relu";
  EXPECT_TRUE(watched.same());
  watched.module.field = "relu6";
  EXPECT_FALSE(watched.same());
  Watched<std::string> longer("a string too long to be inside");
  EXPECT_NE(longer.unguardable(), "");
}

TEST(WatchScan, WhatFollowsAShortStringIsNotScanned) {
  // What an earlier, longer string or the heap left there.
  Watched<std::string> watched("ab");
  const void* heap = watched.module.fc.get();
  const auto leftover = std::make_unique<int>(1);
  heap = leftover.get();
  std::memcpy(watched.module.field.data() + 8, &heap, sizeof heap);
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
}

TEST(WatchScan, MapsAndSharedPointersAreOpaque) {
  Watched<std::map<int, double>> map({{1, 2.0}});
  EXPECT_NE(map.unguardable(), "");
  Watched<std::shared_ptr<Strategy>> strategy(std::make_shared<Fixed>());
  EXPECT_NE(strategy.unguardable(), "");
  Watched<std::shared_ptr<Strategy>> none;
  none.take();
  EXPECT_EQ(none.unguardable(), "");
  double local = 1;
  Watched<double*> stack(&local);
  EXPECT_NE(stack.unguardable(), "");
  static double global = 1;
  global += 1;
  Watched<double*> data(&global);
  EXPECT_NE(data.unguardable(), "");
}

TEST(WatchScan, ConstantsAreNotOpaque) {
  Watched<const char*> text("a literal");
  EXPECT_EQ(text.unguardable(), "");
  Watched<Fixed> inline_strategy; // Has a vtable pointer.
  inline_strategy.take();
  EXPECT_EQ(inline_strategy.unguardable(), "");
  inline_strategy.module.field.value = 3;
  EXPECT_FALSE(inline_strategy.same());
}

TEST(WatchScan, FunctionPointersAndFunctionsAreWatchedByValue) {
  Watched<torch::Tensor (*)(torch::Tensor)> pointer(&twice);
  EXPECT_EQ(pointer.unguardable(), "");
  pointer.module.field = &thrice;
  EXPECT_FALSE(pointer.same());

  using Function = std::function<torch::Tensor(torch::Tensor)>;
  Watched<Function> function{Function(&twice)};
  EXPECT_EQ(function.unguardable(), "");
  function.module.field = &thrice;
  EXPECT_FALSE(function.same());
  function.module.field = [](torch::Tensor x) { return x; };
  function.take();
  EXPECT_EQ(function.unguardable(), "");
  const double factor = 2;
  function.module.field = [factor](torch::Tensor x) { return x * factor; };
  EXPECT_FALSE(function.same());
  function.take();
  EXPECT_EQ(function.unguardable(), "");
  const double more[4] = {1, 2, 3, 4}; // Too large to be inside.
  function.module.field = [more](torch::Tensor x) { return x * more[1]; };
  function.take();
  EXPECT_THAT(
      function.unguardable(), HasSubstr("hold what a std::function has"));
}

TEST(WatchScan, CapturesOfLibTorchsFunctionalAreLookedAt) {
  double factor = 2;
  torch::nn::Functional by_value(
      [factor](torch::Tensor x) { return x * factor; });
  torch::nn::Functional by_reference(
      [&factor](torch::Tensor x) { return x * factor; });
  for (const bool reference : {false, true}) {
    Watch watch;
    watch.add_module(reference ? *by_reference : *by_value);
    EXPECT_EQ(watch.take()->unguardable().empty(), !reference);
  }
}

TEST(WatchScan, HoldersOfChildrenAreFollowed) {
  struct Holders {
    Linear same{nullptr};
    std::vector<Linear> all;
    std::vector<std::shared_ptr<torch::nn::Module>> pointers;
    torch::nn::Module* raw = nullptr;
    std::weak_ptr<torch::nn::Module> weak;
  };
  Watched<Holders> watched;
  Holders& holders = watched.module.field;
  Linear& fc = watched.module.fc;
  holders.same = fc;
  holders.all = {fc, nullptr, fc};
  holders.pointers = {fc.ptr()};
  holders.raw = fc.get();
  holders.weak = fc.ptr();
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
  EXPECT_TRUE(watched.same());
  const Linear first = holders.all[0];
  holders.all[0] = nullptr; // In the vector's own memory.
  EXPECT_FALSE(watched.same());
  EXPECT_THAT(
      watched.watch.difference(*watched.then),
      HasSubstr("element 0 of the vector at bytes"));
  holders.all[0] = first;
  EXPECT_TRUE(watched.same());
  holders.all.pop_back();
  EXPECT_FALSE(watched.same());
  holders.all.push_back(Linear(2, 2)); // Not registered.
  watched.take();
  EXPECT_NE(watched.unguardable(), "");
}

TEST(WatchScan, VectorsOfTensorsAreFollowed) {
  Watched<std::vector<torch::Tensor>> watched(
      {torch::ones({2}), torch::Tensor(), torch::ones({3})});
  std::vector<torch::Tensor>& tensors = watched.module.field;
  EXPECT_EQ(watched.unguardable(), "");
  EXPECT_TRUE(watched.same());
  const auto place = watched.then->find(tensors[2]);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->role, graph::Role::kField);
  EXPECT_THAT(place->path, HasSubstr("[2]"));
  tensors[2].add_(1);
  EXPECT_TRUE(watched.same());
  tensors[2].resize_({4});
  EXPECT_FALSE(watched.same());
  tensors[2].resize_({3});
  EXPECT_TRUE(watched.same());
  tensors[1] = torch::ones({1});
  EXPECT_FALSE(watched.same());
  watched.take();
  tensors.push_back(torch::ones({1})); // One more each call.
  EXPECT_FALSE(watched.same());
  watched.take();
  tensors.clear();
  EXPECT_FALSE(watched.same());
  // Three equal pointers to writable memory may be anything.
  watched.take();
  EXPECT_NE(watched.unguardable(), "");
  tensors.shrink_to_fit();
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
}

TEST(WatchScan, TensorsInOptionalsAndArraysAreFields) {
  struct Fields {
    std::optional<torch::Tensor> optional;
    std::array<torch::Tensor, 2> array;
    std::pair<int, torch::Tensor> pair;
  };
  Watched<Fields> watched(
      {torch::ones({1}), {torch::ones({2}), {}}, {1, torch::ones({3})}});
  EXPECT_EQ(watched.unguardable(), "");
  EXPECT_TRUE(watched.then->find(*watched.module.field.optional).has_value());
  EXPECT_TRUE(watched.then->find(watched.module.field.array[0]).has_value());
  EXPECT_TRUE(watched.then->find(watched.module.field.pair.second).has_value());
  EXPECT_EQ(watched.then->tensors().size(), 5u);
  watched.module.field.array[1] = torch::ones({2});
  EXPECT_FALSE(watched.same());
}

TEST(WatchScan, PointersIntoTheObjectItselfAreKnown) {
  struct Self {
    double values[2] = {1, 2};
    double* current = values;
  };
  Watched<Self> watched;
  watched.module.field.current = &watched.module.field.values[1];
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
  watched.module.field.values[1] = 3;
  EXPECT_FALSE(watched.same());
}

TEST(WatchScan, KnownAddressesAreNotOpaque) {
  Fixed strategy;
  Watched<Strategy*> watched(&strategy);
  EXPECT_NE(watched.unguardable(), "");
  watched.watch.add_known_address(&strategy);
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
  Watched<Strategy*> ranged(&strategy);
  ranged.watch.add_range(&strategy, sizeof strategy, "strategy");
  ranged.take();
  EXPECT_EQ(ranged.unguardable(), "");
  strategy.value = 5;
  EXPECT_FALSE(ranged.same());
  EXPECT_THAT(
      ranged.watch.difference(*ranged.then),
      HasSubstr("'strategy': field at bytes 8..15 changed"));
}

TEST(WatchScan, CapturesOfLambdas) {
  torch::Tensor w = torch::ones({2});
  double gain = 1;
  Linear fc(2, 2);
  const auto take = [](const auto& lambda, auto&&... known) {
    Watch watch;
    watch.add_range(&lambda, sizeof lambda, "f");
    (watch.add_module(*known), ...);
    return watch.take();
  };
  const auto tensor = [w](torch::Tensor x) { return x * w; };
  const auto state = take(tensor);
  EXPECT_EQ(state->unguardable(), "");
  ASSERT_TRUE(state->find(w).has_value());
  EXPECT_EQ(state->find(w)->path, "bytes 0..7 of 'f'");
  const auto number = [gain](torch::Tensor x) { return x * gain; };
  EXPECT_EQ(take(number)->unguardable(), "");
  const auto module = [fc](torch::Tensor x) mutable { return fc(x); };
  EXPECT_NE(take(module)->unguardable(), "");
  EXPECT_EQ(take(module, fc)->unguardable(), "");
  const auto reference = [&w](torch::Tensor x) { return x * w; };
  EXPECT_THAT(
      take(reference)->unguardable(),
      HasSubstr("bytes 0..7 of 'f' point to memory"));
  EXPECT_THAT(
      take(reference)->unguardable(),
      HasSubstr("temper::compile(f, variable)"));
  const auto by_reference = [&gain](torch::Tensor x) { return x * gain; };
  EXPECT_NE(take(by_reference)->unguardable(), "");
}

TEST(WatchScan, AMutableLambdasStateIsSeen) {
  auto counter = [n = int64_t{0}]() mutable { return ++n; };
  Watch watch;
  watch.add_range(&counter, sizeof counter, "counter");
  const auto then = watch.take();
  EXPECT_TRUE(watch.matches(*then));
  counter();
  EXPECT_FALSE(watch.matches(*then));
  EXPECT_EQ(
      watch.difference(*then),
      "'counter': field at bytes 0..7 changed from 0 to 1 (as a double "
      "4.94066e-324)");
}

TEST(WatchScan, DeclaredFieldsAreWatchedByContent) {
  using Values = std::vector<double>;
  Watched<Values> watched({1.0, 2.0});
  Values& values = watched.module.field;
  watched.watch.add_field(
      {"values", &values, sizeof values, [&values](FieldContent& content) {
         content.bytes.append(
             reinterpret_cast<const char*>(values.data()),
             values.size() * sizeof(double));
       }});
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
  EXPECT_TRUE(watched.same());
  values.reserve(100); // Where the content lies does not matter.
  EXPECT_TRUE(watched.same());
  values[1] = 3;
  EXPECT_FALSE(watched.same());
  EXPECT_EQ(watched.watch.difference(*watched.then), "field 'values' changed");
  values[1] = 2;
  EXPECT_TRUE(watched.same());
  watched.module.after = 5; // Beside it.
  EXPECT_FALSE(watched.same());
  watched.module.after = 2;
  watched.module.before = 5;
  EXPECT_FALSE(watched.same());
}

TEST(WatchScan, TensorsOfDeclaredFieldsAreReachable) {
  using Cache = std::map<int, torch::Tensor>;
  Watched<Cache> watched({{1, torch::ones({2})}, {2, torch::ones({3})}});
  Cache& cache = watched.module.field;
  watched.watch.add_field(
      {"cache", &cache, sizeof cache, [&cache](FieldContent& content) {
         for (const auto& [key, tensor] : cache) {
           content.bytes.push_back(static_cast<char>(key));
           content.tensors.push_back(tensor);
         }
       }});
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
  ASSERT_TRUE(watched.then->find(cache[2]).has_value());
  EXPECT_EQ(watched.then->find(cache[2])->path, "cache[1]");
  EXPECT_EQ(cache[2].use_count(), 1u);
  EXPECT_TRUE(watched.same());
  EXPECT_EQ(cache[2].use_count(), 1u);
  cache[2].resize_({4});
  EXPECT_FALSE(watched.same());
  cache[2].resize_({3});
  EXPECT_TRUE(watched.same());
  const torch::Tensor old = cache[2]; // Lives on.
  cache[2] = torch::ones({3});
  EXPECT_FALSE(watched.same());
  EXPECT_EQ(
      watched.watch.difference(*watched.then), "'cache[1]' is another tensor");
  watched.take();
  cache.erase(2);
  EXPECT_FALSE(watched.same());
}

TEST(WatchScan, IgnoredFieldsAreNeitherComparedNorScanned) {
  Watched<std::vector<double>> watched({1.0});
  std::vector<double>& values = watched.module.field;
  watched.watch.add_field({"values", &values, sizeof values, {}});
  watched.take();
  EXPECT_EQ(watched.unguardable(), "");
  values = {1, 2, 3};
  EXPECT_TRUE(watched.same());
  watched.module.after = 3;
  EXPECT_FALSE(watched.same());
}

struct DeclaringImpl : torch::nn::Module {
  std::vector<double> scales{1, 2};
  std::shared_ptr<int> ignored = std::make_shared<int>(1);

  static std::vector<Field> fields(const torch::nn::Module& module) {
    const auto* self = static_cast<const DeclaringImpl*>(&module);
    return {
        {"scales",
         &self->scales,
         sizeof self->scales,
         [self](FieldContent& content) {
           content.bytes.append(
               reinterpret_cast<const char*>(self->scales.data()),
               self->scales.size() * sizeof(double));
         }},
        {"ignored", &self->ignored, sizeof self->ignored, {}}};
  }
};

TEST(WatchScan, FieldsDeclaredForATypeHoldForEveryChildOfIt) {
  record_module_type(
      typeid(DeclaringImpl),
      {sizeof(DeclaringImpl), {}, &DeclaringImpl::fields});
  torch::nn::ModuleList list;
  for (int i = 0; i < 2; ++i) {
    const auto child = std::make_shared<DeclaringImpl>();
    list->push_back(child);
  }
  Watch watch;
  watch.add_module(*list);
  const auto then = watch.take();
  EXPECT_EQ(then->unguardable(), "");
  auto& second = *list[1]->as<DeclaringImpl>();
  *second.ignored = 2;
  second.ignored.reset();
  EXPECT_TRUE(watch.matches(*then));
  second.scales[0] = 7;
  EXPECT_FALSE(watch.matches(*then));
  EXPECT_EQ(watch.difference(*then), "field '1.scales' changed");
}

TEST(WatchScan, TheRemainsOfATensorAreNotFollowed) {
  Watched<const void*> watched;
  {
    const torch::Tensor gone = torch::ones({2});
    watched.module.field = gone.unsafeGetTensorImpl();
  }
  watched.take();
  EXPECT_EQ(watched.then->tensors().size(), 2u);
  // Freed memory may well keep the vtable pointer.
  alignas(16) std::array<std::byte, sizeof(c10::TensorImpl)> remains{};
  std::memcpy(
      remains.data(), torch::ones({2}).unsafeGetTensorImpl(), sizeof(void*));
  watched.module.field = remains.data();
  watched.take();
  EXPECT_EQ(watched.then->tensors().size(), 2u);
  EXPECT_NE(watched.unguardable(), "");
}

TEST(WatchScan, ThreePointersAreNoVectorUnlessInOrder) {
  std::array<uintptr_t, 4> words{};
  using Pointers = std::array<uintptr_t*, 3>;
  Watched<Pointers> down({&words[2], &words[1], &words[0]});
  EXPECT_NE(down.unguardable(), "");
  Watched<Pointers> beyond({&words[0], &words[2], &words[1]});
  EXPECT_NE(beyond.unguardable(), "");
}

TEST(WatchMemory, ReadsWithoutFaulting) {
  int value = 42;
  int copy = 0;
  EXPECT_TRUE(
      read_memory(reinterpret_cast<uintptr_t>(&value), sizeof value, &copy));
  EXPECT_EQ(copy, 42);
  EXPECT_FALSE(read_memory(8, 8, &copy));
  EXPECT_FALSE(points_to_memory(0));
  EXPECT_FALSE(points_to_memory(~uintptr_t{0}));
  EXPECT_TRUE(points_to_memory(reinterpret_cast<uintptr_t>(&value)));
  const auto objects = LoadedObjects::current();
  const auto code = reinterpret_cast<uintptr_t>(&twice);
  EXPECT_TRUE(objects->is_code(code));
  EXPECT_TRUE(objects->is_constant(code));
  EXPECT_FALSE(objects->is_constant(reinterpret_cast<uintptr_t>(&value)));
  EXPECT_EQ(LoadedObjects::current(), objects);
}

TEST(WatchThreads, GuardsRunWhileOthersTrain) {
  torch::nn::Sequential net(Linear(4, 4), torch::nn::ReLU(), Linear(4, 4));
  net->forward(torch::randn({2, 4})).sum().backward();
  Watch watch;
  watch.add_module(*net);
  const auto then = watch.take();
  std::atomic<bool> stop{false};
  std::thread trainer([&] {
    torch::optim::SGD optimizer(net->parameters(), 0.01);
    while (!stop) {
      optimizer.zero_grad();
      net->forward(torch::randn({2, 4})).sum().backward();
      optimizer.step();
    }
  });
  for (int i = 0; i < 2000; ++i) {
    ASSERT_TRUE(watch.matches(*then));
  }
  stop = true;
  trainer.join();
}

} // namespace
} // namespace temper::dispatch
