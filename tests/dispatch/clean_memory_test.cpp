// Where padding is, for guards to leave it out: all of it, and nothing else.
#include "temper/detail/clean_memory.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace temper::detail {
namespace {

// "vvv....." of an object: v is a byte of a value, . is padding.
template <typename T>
std::string found() {
  std::string map(sizeof(T), 'v');
  for (const Gap& gap : padding_of<T>()) {
    EXPECT_LT(gap.begin, gap.end);
    for (size_t i = gap.begin; i < gap.end; ++i) {
      EXPECT_EQ(map[i], 'v');
      map[i] = '.';
    }
  }
  return map;
}

// The same, of the places of its members.
template <typename T, typename... Members>
std::string expected(const T& object, const Members&... members) {
  std::string map(sizeof(T), '.');
  const auto* begin = reinterpret_cast<const char*>(&object);
  const auto mark = [&](const void* member, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      map[static_cast<size_t>(static_cast<const char*>(member) - begin) + i] =
          'v';
    }
  };
  if (std::is_polymorphic_v<T>) {
    mark(begin, sizeof(void*));
  }
  (mark(&members, sizeof members), ...);
  return map;
}

struct Base {
  bool first = true;
  virtual ~Base() = default;
};
struct Derived : Base {
  char behind = 'a'; // In Base's padding.
  double number = 1;
  std::string text;
  int32_t small = 1;
};
struct Further : Derived {
  bool last = false; // In Derived's.
  std::vector<int> numbers;
  char letter = 'b';
};
struct Side {
  char side = 'c';
  int16_t number = 2;
};
struct Two : Side, Base {
  char letter = 'd';
};
struct Virtual : virtual Side, Base {
  char letter = 'e';
};
struct Nested {
  Derived inner;
  bool flag = false;
  [[no_unique_address]] std::monostate nothing;
};

TEST(CleanMemory, PaddingIsAllThatNoMemberCovers) {
#if defined(__clang__)
  GTEST_SKIP() << "the compiler does not tell";
#endif
  const Derived derived;
  EXPECT_EQ(
      found<Derived>(),
      expected(
          derived,
          derived.first,
          derived.behind,
          derived.number,
          derived.text,
          derived.small));
  const Further further;
  EXPECT_EQ(
      found<Further>(),
      expected(
          further,
          further.first,
          further.behind,
          further.number,
          further.text,
          further.small,
          further.last,
          further.numbers,
          further.letter));
  const Two two;
  EXPECT_EQ(
      found<Two>(),
      expected(two, two.first, two.letter, two.side, two.Side::number));
  const Virtual mixed;
  EXPECT_EQ(
      found<Virtual>(),
      expected(mixed, mixed.first, mixed.letter, mixed.side, mixed.number));
}

TEST(CleanMemory, PaddingInsideMembers) {
  const std::string derived = found<Derived>();
  EXPECT_EQ(found<Nested>(), derived + "v.......");
  EXPECT_EQ(found<std::optional<double>>(), "vvvvvvvvv.......");
  EXPECT_EQ((found<std::variant<char, int32_t>>()), "vvvvv...");
  struct Bits {
    uint8_t some : 3;
    int32_t number;
  };
  EXPECT_EQ(found<Bits>(), "v...vvvv"); // Whole bytes only.
  struct Long {
    long double number;
    bool flags[3];
  };
  EXPECT_EQ(found<Long>(), "vvvvvvvvvv......vvv.............");
  EXPECT_EQ(found<double>(), "vvvvvvvv");
  EXPECT_EQ(found<torch::Tensor>(), "vvvvvvvv");
}

TEST(CleanMemory, PaddingOfCaptures) {
  const bool flag = true;
  const double number = 1;
  const auto f = [flag, number] { return flag ? number : 0; };
  EXPECT_EQ(found<std::remove_const_t<decltype(f)>>(), "v.......vvvvvvvv");
}

TEST(CleanMemory, FieldsEndWhereTheyDoUnlessThereAreOtherBases) {
  const auto end = []<typename T, typename B>(const T&, const B&) {
    return end_of_fields(typeid(T), typeid(B), sizeof(T), padding_of<T>());
  };
  const Derived derived;
  const Base base;
  // Its last member is followed by padding in which others may lie.
  EXPECT_EQ(
      end(derived, base),
      reinterpret_cast<const char*>(&derived.small + 1) -
          reinterpret_cast<const char*>(&derived));
  EXPECT_GT(end(Further(), base), sizeof(Derived));
  EXPECT_EQ(end(Two(), base), 0u);
  EXPECT_EQ(end(Virtual(), base), 0u);
}

TEST(CleanMemory, IsZero) {
  void* memory = allocate_clean(64);
  std::memset(memory, 1, 64);
  free_clean(memory);
  for (int i = 0; i < 8; ++i) {
    auto* again = static_cast<char*>(allocate_clean(64));
    EXPECT_EQ(std::string(again, 64), std::string(64, '\0'));
    free_clean(again);
  }
}

} // namespace
} // namespace temper::detail
