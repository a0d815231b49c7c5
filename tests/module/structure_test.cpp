// Structured values: what they are taken apart into, and put together from.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "temper/detail/call.h"
#include "temper/detail/module_type.h"
#include "temper/error.h"
#include "temper/fields.h"

namespace {

using temper::detail::kFlattens;
using temper::detail::kIsArgument;
using temper::detail::kRefills;
using temper::detail::Sink;
using temper::detail::Source;
using torch::Tensor;

struct Flat {
  std::vector<Tensor> tensors;
  std::string bytes;
  std::string rejected;
};

template <class T>
Flat flat(const T& value) {
  Flat result;
  Sink sink(result.tensors, result.bytes);
  temper::detail::flatten(value, sink);
  result.rejected = sink.rejected();
  return result;
}

// Puts new tensors in a prototype's places and takes the result apart again.
template <class T>
void expect_round_trip(const T& value, size_t num_tensors) {
  const Flat before = flat(value);
  ASSERT_EQ(before.tensors.size(), num_tensors);
  const T prototype = temper::detail::prototype_of(value);
  for (const auto& tensor : flat(prototype).tensors) {
    EXPECT_FALSE(tensor.defined());
  }
  EXPECT_EQ(flat(prototype).bytes, before.bytes);
  std::vector<Tensor> others;
  for (size_t i = 0; i < num_tensors; ++i) {
    others.push_back(torch::full({1}, static_cast<double>(i)));
  }
  Source source(others);
  const T rebuilt = temper::detail::unflatten(prototype, source);
  const Flat after = flat(rebuilt);
  EXPECT_EQ(after.bytes, before.bytes);
  ASSERT_EQ(after.tensors.size(), num_tensors);
  for (size_t i = 0; i < num_tensors; ++i) {
    EXPECT_TRUE(after.tensors[i].is_same(others[i])) << i;
  }
  // The value itself is as before.
  const Flat again = flat(value);
  for (size_t i = 0; i < num_tensors; ++i) {
    EXPECT_TRUE(again.tensors[i].is_same(before.tensors[i])) << i;
  }
}

enum class Mode { kFast, kSlow };

struct Inner {
  Tensor a;
  int64_t n = 0;
};
struct Outer {
  std::vector<Inner> inners;
  std::optional<Tensor> mask;
  std::map<std::string, std::tuple<Tensor, double>> named;
  Mode mode = Mode::kFast;
  std::string text;
};
struct Empty {};

class Listed {
 public:
  Listed(Tensor x, std::string s) : x_(std::move(x)), s_(std::move(s)) {}

 private:
  Tensor x_;
  std::string s_;
  int cache_ = 0;
  TEMPER_FIELDS(x_, s_)
};

TEST(StructureTest, TensorsHaveNoBytes) {
  const auto x = torch::ones({2});
  EXPECT_TRUE(flat(x).bytes.empty());
  EXPECT_TRUE(flat(std::make_tuple(x, x)).bytes.empty());
  expect_round_trip(x, 1);
  expect_round_trip(std::make_tuple(x, Tensor(), x), 3);
  expect_round_trip(std::array<Tensor, 2>{x, x}, 2);
}

TEST(StructureTest, RoundTrips) {
  const auto x = torch::ones({2});
  expect_round_trip(3, 0);
  expect_round_trip(Mode::kSlow, 0);
  expect_round_trip(std::string("text"), 0);
  expect_round_trip(Empty{}, 0);
  expect_round_trip(std::optional<Tensor>(), 0);
  expect_round_trip(std::optional<Tensor>(x), 1);
  expect_round_trip(std::vector<Tensor>{x, x, x}, 3);
  expect_round_trip(std::vector<bool>{true, false}, 0);
  expect_round_trip(std::deque<std::pair<Tensor, int>>{{x, 1}}, 1);
  expect_round_trip(std::variant<double, Tensor>(x), 1);
  expect_round_trip(std::variant<double, Tensor>(1.0), 0);
  expect_round_trip(Inner{x, 4}, 1);
  expect_round_trip(
      Outer{{{x, 1}, {x, 2}}, x, {{"k", {x, 0.5}}}, Mode::kSlow, "text"}, 4);
  expect_round_trip(Listed(x, "s"), 1);
  torch::OrderedDict<std::string, Tensor> ordered;
  ordered.insert("b", x);
  ordered.insert("a", x);
  expect_round_trip(ordered, 2);
}

struct WithArrays {
  Tensor parts[2];
  int64_t sizes[3] = {1, 2, 3};
  TEMPER_FIELDS(parts, sizes)
};

TEST(StructureTest, ListedArrays) {
  WithArrays value;
  value.parts[0] = torch::ones({1});
  expect_round_trip(value, 2);
  WithArrays other = value;
  other.sizes[2] = 4;
  EXPECT_NE(flat(value).bytes, flat(other).bytes);
}

TEST(StructureTest, UnorderedContainersAreTakenInTheOrderOfAWalk) {
  const auto x = torch::ones({1});
  std::unordered_map<std::string, Tensor> map{{"a", x}, {"b", x}, {"c", x}};
  std::unordered_set<int> set{1, 2, 3};
  std::unordered_map<std::string, Tensor> other;
  std::unordered_set<int> other_set;
  for (const auto& entry : map) { // Libstdc++ puts new ones in front.
    other.insert(entry);
  }
  for (const int item : set) {
    other_set.insert(item);
  }
  ASSERT_NE(map.begin()->first, other.begin()->first);
  ASSERT_NE(*set.begin(), *other_set.begin());
  EXPECT_NE(flat(map).bytes, flat(other).bytes);
  EXPECT_NE(flat(set).bytes, flat(other_set).bytes);
  EXPECT_EQ(flat(map).bytes, flat(decltype(map)(map)).bytes);
  EXPECT_EQ(flat(set).bytes, flat(decltype(set)(set)).bytes);
  expect_round_trip(map, 3);
  expect_round_trip(other, 3);
}

TEST(StructureTest, EveryOtherValueHasOtherBytes) {
  const auto x = torch::ones({1});
  const auto differ = [](const auto& a, const auto& b) {
    return flat(a).bytes != flat(b).bytes;
  };
  EXPECT_TRUE(differ(1.0, -1.0));
  EXPECT_TRUE(differ(0.0, -0.0));
  EXPECT_TRUE(differ(true, false));
  EXPECT_TRUE(differ(std::optional<Tensor>(), std::optional<Tensor>(x)));
  using Lists = std::vector<std::vector<Tensor>>;
  EXPECT_TRUE(differ(Lists{{x}, {x, x}}, Lists{{x, x}, {x}}));
  using Texts = std::vector<std::string>;
  EXPECT_TRUE(differ(Texts{"a", "bc"}, Texts{"ab", "c"}));
  EXPECT_TRUE(differ(Texts{"", "a"}, Texts{"a", ""}));
  EXPECT_TRUE(differ(at::Scalar(1), at::Scalar(1.0)));
  EXPECT_TRUE(differ(at::Scalar(1), at::Scalar(true)));
  EXPECT_TRUE(differ(
      std::variant<int, float, double>(1),
      std::variant<int, float, double>(1.0)));
  EXPECT_TRUE(differ(
      torch::dtype(torch::kFloat), torch::dtype(torch::kFloat).device("meta")));
  EXPECT_TRUE(differ(torch::Device("cuda:0"), torch::Device("cuda:1")));
  using Tag = std::variant<std::monostate, int>;
  EXPECT_TRUE(differ(Tag(), Tag(0)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(differ(nan, nan));
  using Name = const char*;
  EXPECT_TRUE(differ(Name(nullptr), Name("")));
  EXPECT_FALSE(differ(Name("a"), Name(std::string("a").c_str())));
}

TEST(StructureTest, SetsAndMultimaps) {
  const auto x = torch::ones({1});
  expect_round_trip(std::set<int, std::greater<>>{1, 2, 3}, 0);
  expect_round_trip(std::multiset<std::string>{"a", "a", "b"}, 0);
  expect_round_trip(std::unordered_set<std::string>{"a", "b"}, 0);
  expect_round_trip(std::multimap<int, Tensor>{{1, x}, {1, x}}, 2);
}

// Structs are told by what is in them; a base is not.
struct Derived : Inner {
  int more = 0;
};
struct Holding {
  torch::nn::Linear fc{nullptr};
};
struct Tree {
  Tensor value;
  std::vector<std::pair<int, Tree>> children;
};
struct ListedTree {
  Tensor value;
  std::vector<ListedTree> children;
  TEMPER_FIELDS(value, children)
};
struct FirstOptional {
  std::optional<Tensor> first;
  c10::IValue second;
};
struct FirstValue {
  c10::IValue first;
  Tensor second;
};
static_assert(kIsArgument<Inner> && kRefills<Outer>);
static_assert(kIsArgument<FirstOptional> && kIsArgument<FirstValue>);
static_assert(!kFlattens<Derived> && !kRefills<Derived>);
static_assert(!kFlattens<Tree> && !kRefills<Tree>);
static_assert(!kIsArgument<std::vector<Tree>>);
static_assert(kIsArgument<ListedTree> && kRefills<ListedTree>);
// Modules are state, not arguments or results.
static_assert(kFlattens<Holding> && !kIsArgument<Holding>);
static_assert(kFlattens<torch::nn::Linear> && !kIsArgument<torch::nn::Linear>);
using Layers = std::map<std::string, std::vector<torch::nn::Sequential>>;
static_assert(kFlattens<Layers> && !kIsArgument<Layers> && !kRefills<Layers>);
using Pointer = std::shared_ptr<torch::nn::Module>;
static_assert(kFlattens<Pointer> && !kIsArgument<Pointer>);

TEST(StructureTest, ScriptValues) {
  const auto x = torch::ones({1});
  using c10::IValue;
  expect_round_trip(IValue(), 0);
  expect_round_trip(IValue(x), 1);
  expect_round_trip(IValue(std::vector<Tensor>{x, x}), 2);
  expect_round_trip(IValue(std::vector<int64_t>{1, 2}), 0);
  expect_round_trip(IValue(std::make_tuple(x, 1.0, std::string("s"))), 1);
  c10::Dict<std::string, Tensor> dict;
  dict.insert("k", x);
  expect_round_trip(IValue(dict), 1);
  EXPECT_NE(flat(IValue(1)).bytes, flat(IValue(1.0)).bytes);
  EXPECT_NE(
      flat(IValue(std::vector<int64_t>{})).bytes,
      flat(IValue(std::vector<double>{})).bytes);
  EXPECT_EQ(
      flat(IValue(at::make_generator<at::CPUGeneratorImpl>())).rejected,
      "a TorchScript Generator");
}

TEST(StructureTest, PackedSequences) {
  namespace rnn = torch::nn::utils::rnn;
  const auto packed = rnn::pack_sequence(
      {torch::ones({3, 2}), torch::ones({5, 2})}, /*enforce_sorted=*/false);
  const Flat before = flat(packed);
  ASSERT_EQ(before.tensors.size(), 4U);
  auto prototype = temper::detail::prototype_of(packed);
  EXPECT_FALSE(prototype.data().defined());
  Source source(before.tensors);
  const auto rebuilt = temper::detail::unflatten(prototype, source);
  EXPECT_TRUE(rebuilt.data().is_same(packed.data()));
  EXPECT_TRUE(rebuilt.batch_sizes().is_same(packed.batch_sizes()));
  EXPECT_TRUE(rebuilt.unsorted_indices().is_same(packed.unsorted_indices()));
}

TEST(StructureTest, SourceThatRunsOutIsOurOwnError) {
  Source source(std::vector<Tensor>{});
  EXPECT_THROW(source.tensor(), temper::InternalError);
}

// Which types are structured is known to the compiler.
struct WithPointer {
  Tensor x;
  int* p = nullptr;
};
class Closed {
 public:
  explicit Closed(int n) : n_(n) {}

 private:
  int n_;
};
static_assert(kIsArgument<Outer> && kRefills<Outer>);
static_assert(kIsArgument<Listed> && kRefills<Listed>);
static_assert(kIsArgument<at::IntArrayRef> && !kRefills<at::IntArrayRef>);
static_assert(kIsArgument<std::optional<at::IntArrayRef>>);
static_assert(kIsArgument<at::TensorList>);
static_assert(kIsArgument<std::string_view>);
static_assert(kIsArgument<const char*>);
static_assert(kIsArgument<std::nullopt_t>);
static_assert(!kFlattens<WithPointer>);
static_assert(!kFlattens<std::vector<WithPointer>>);
static_assert(!kFlattens<Closed>);
static_assert(!kFlattens<int*>);
static_assert(!kFlattens<std::function<void()>>);
static_assert(!kIsArgument<torch::nn::Linear>);
static_assert(!kIsArgument<char[4]>);
static_assert(kFlattens<std::shared_ptr<Inner>>);
static_assert(!kIsArgument<std::shared_ptr<Inner>>);

} // namespace
