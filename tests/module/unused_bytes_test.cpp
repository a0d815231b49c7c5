// Padding and unused bytes that happen to look like pointers: no call runs
// eagerly and no signature is new for their sake.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "temper/temper.h"

namespace {

using torch::Tensor;

// The address of memory that can be read, of unknown content.
uintptr_t some_pointer() {
  static const auto* const there = new std::array<double, 16>{};
  return reinterpret_cast<uintptr_t>(there->data());
}

void fill(void* memory, size_t size) {
  auto* const words = static_cast<unsigned char*>(memory);
  const uintptr_t word = some_pointer();
  for (size_t at = 0; at + sizeof word <= size; at += sizeof word) {
    std::memcpy(words + at, &word, sizeof word);
  }
}

// Blocks of about this size that malloc gives next are mostly full of pointers;
// `LitteringAllocator` makes sure.
void litter_heap(size_t size) {
  std::vector<void*> blocks;
  for (size_t more = 0; more <= 128; more += 16) {
    for (int i = 0; i < 12; ++i) {
      blocks.push_back(std::malloc(size + more));
      fill(blocks.back(), size + more);
    }
  }
  for (void* block : blocks) {
    std::free(block);
  }
}

// The same of the stack below the caller.
[[gnu::noinline]] void litter_stack() {
  std::array<uintptr_t, 4096> words{};
  fill(words.data(), sizeof words);
  asm volatile("" ::"r"(words.data()) : "memory");
}

// Gives littered memory.
template <class T>
struct LitteringAllocator {
  using value_type = T;
  LitteringAllocator() = default;
  template <class U>
  LitteringAllocator(const LitteringAllocator<U>&) {}
  T* allocate(size_t count) {
    auto* memory = static_cast<T*>(std::malloc(count * sizeof(T)));
    fill(static_cast<void*>(memory), count * sizeof(T));
    return memory;
  }
  void deallocate(T* memory, size_t) {
    std::free(memory);
  }
  bool operator==(const LitteringAllocator&) const = default;
};

struct Range {
  bool open = false;
  double low = 0;
  double high = 1;
  char unit = 'm';
};

struct NetImpl : temper::Module<NetImpl> {
  bool scaled = true; // 7 bytes of padding follow.
  double scale = 2;
  char letter = 'a';
  Range range;
  std::optional<double> shift; // Empty: 8 bytes of nothing.
  std::optional<Tensor> mask;
  std::string text = "short";
  int32_t last = 0;
  torch::nn::Linear fc{nullptr};
  bool end = false;

  NetImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(3, 3));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = scaled ? fc(x) * scale : fc(x);
    return shift ? y + *shift : y;
  }
};
TEMPER_MODULE(Net);

// Six calls: one trace, one shadow run, four more by program.
void expect_admitted(NetImpl& net) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::ones({2, 3});
  net.compile();
  for (int i = 0; i < 6; ++i) {
    EXPECT_TRUE(net(x).equal(net.forward(x)));
  }
  const auto counters = temper::counters_of(net);
  EXPECT_EQ(counters.program_calls, 5) << net.explain();
  EXPECT_EQ(counters.traces, 1) << net.explain();
}

// Sets all bytes of padding and checks that no guard minds.
void expect_padding_free(NetImpl& net) {
  const torch::NoGradGuard no_grad;
  const auto x = torch::ones({2, 3});
  const auto before = temper::counters_of(net);
  for (const auto& gap : temper::detail::padding_of<NetImpl>()) {
    std::memset(
        reinterpret_cast<char*>(&net) + gap.begin, 0x55, gap.end - gap.begin);
  }
  net(x);
  EXPECT_EQ(temper::counters_of(net).program_calls, before.program_calls + 1)
      << net.explain();
}

TEST(UnusedBytesTest, OfAHolder) {
  litter_heap(sizeof(NetImpl));
  Net net;
  expect_admitted(*net);
  expect_padding_free(*net);
}

TEST(UnusedBytesTest, OfMakeShared) {
  litter_heap(sizeof(NetImpl));
  const auto net = std::make_shared<NetImpl>();
  expect_admitted(*net);
  expect_padding_free(*net);
  const auto littered =
      std::allocate_shared<NetImpl>(LitteringAllocator<NetImpl>());
  expect_admitted(*littered);
  expect_padding_free(*littered);
}

TEST(UnusedBytesTest, OfClonesAndCopies) {
  Net net;
  litter_heap(sizeof(NetImpl));
  const auto clone = std::dynamic_pointer_cast<NetImpl>(net->clone());
  expect_admitted(*clone);
  expect_padding_free(*clone);
  const auto copy =
      std::allocate_shared<NetImpl>(LitteringAllocator<NetImpl>(), *net);
  expect_admitted(*copy);
  litter_stack();
  NetImpl local(*net);
  expect_admitted(local);
}

TEST(UnusedBytesTest, AssignedAStructWithPadding) {
  Net net;
  expect_admitted(*net);
  const torch::NoGradGuard no_grad;
  const auto x = torch::ones({2, 3});
  const auto calls = temper::counters_of(net).program_calls;
  alignas(Range) std::array<std::byte, sizeof(Range)> memory;
  fill(memory.data(), memory.size());
  net->range = *new (memory.data()) Range(); // With its padding.
  net(x);
  EXPECT_EQ(temper::counters_of(net).program_calls, calls + 1)
      << temper::explain(net);
}

// A class with fields of its own, and a second base that is built first.
struct Noted {
  uintptr_t note = 42;
  Noted() = default;
};
struct MixedImpl : Noted, temper::Module<MixedImpl> {
  bool flag = true;
  double scale = 3;
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return flag ? x * scale + static_cast<double>(note) : x;
  }
};

TEST(UnusedBytesTest, OtherBasesKeepTheirValues) {
  const auto mixed =
      std::allocate_shared<MixedImpl>(LitteringAllocator<MixedImpl>());
  EXPECT_EQ(mixed->note, 42u);
  mixed->compile();
  const auto x = torch::ones({2});
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE((*mixed)(x).equal(x * 3 + 42));
  }
  EXPECT_EQ(temper::counters_of(*mixed).program_calls, 3) << mixed->explain();
  mixed->note = 43;
  EXPECT_TRUE((*mixed)(x).equal(x * 3 + 43));
}

// Its constructor runs on littered stack.
template <class Make>
[[gnu::noinline]] auto compile_littered(const Make& make) {
  litter_stack();
  litter_heap(sizeof(make()));
  return temper::compile(make());
}

TEST(UnusedBytesTest, OfCaptures) {
  const auto x = torch::ones({2});
  const auto w = torch::full({2}, 3);
  const auto f = compile_littered([&] {
    return [flag = true, scale = 2.0, unit = 'm', w](const Tensor& a) {
      return flag && unit == 'm' ? a * scale + w : a;
    };
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(f(x).equal(x * 2 + w));
  }
  EXPECT_EQ(f.counters().program_calls, 3) << f.explain();

  // The padding of a captured struct is copied with it.
  alignas(Range) std::array<std::byte, sizeof(Range)> memory;
  fill(memory.data(), memory.size());
  const auto* const range = new (memory.data()) Range();
  const auto g = compile_littered([&] {
    return [range = *range, flag = true](const Tensor& a) {
      return flag && !range.open ? a * range.high : a;
    };
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(g(x).equal(x));
  }
  EXPECT_EQ(g.counters().program_calls, 3) << g.explain();
}

// The first fields of a module lie right behind what temper keeps there.
struct EarlyImpl : temper::Module<EarlyImpl> {
  bool flag = false;
  uint16_t number = 1;
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return flag ? x + number : x * number;
  }
};
TEMPER_MODULE(Early);

TEST(UnusedBytesTest, FieldsRightBehindTheBaseAreWatched) {
  Early early;
  early->compile();
  const auto x = torch::full({2}, 5);
  const auto check = [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(early(x).equal(early->forward(x))) << temper::explain(early);
    }
  };
  check();
  early->flag = true;
  check();
  early->number = 2;
  check();
  EXPECT_EQ(temper::counters_of(early).traces, 3) << temper::explain(early);
  EXPECT_EQ(temper::counters_of(early).program_calls, 6);
}

} // namespace
