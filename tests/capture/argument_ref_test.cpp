// What an argument equals is what it equals boxed.
#include "capture/argument_ref.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "graph/constant.h"

namespace temper::capture {
namespace {

using Pairs = std::vector<std::pair<ArgumentRef, c10::IValue>>;

// Each as an operator takes it and as boxing makes it; what `kept` holds lives
// long enough.
struct Kept {
  std::vector<int64_t> two = {1, 2};
  std::vector<int64_t> three = {1, 2, 3};
  std::vector<c10::SymInt> symbolic = {1, 2};
  at::Scalar whole{3};
  at::Scalar real{3.0};
  at::Scalar flag{true};
  std::string text = "tanh";
  std::optional<int64_t> one = 1;
  std::optional<c10::ScalarType> dtype = at::kDouble;
};

Pairs constants(const Kept& kept) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {
      {ArgumentRef(true), true},
      {ArgumentRef(false), false},
      {ArgumentRef(int64_t{1}), 1},
      {ArgumentRef(int64_t{0}), 0},
      {ArgumentRef(1.0), 1.0},
      {ArgumentRef(0.0), 0.0},
      {ArgumentRef(-0.0), -0.0},
      {ArgumentRef(nan), nan},
      {ArgumentRef(std::string_view(kept.text)), kept.text},
      {ArgumentRef(std::string_view("none")), "none"},
      {ArgumentRef(c10::IntArrayRef(kept.two)), kept.two},
      {ArgumentRef(c10::IntArrayRef(kept.three)), kept.three},
      {ArgumentRef(c10::IntArrayRef()), std::vector<int64_t>{}},
      {ArgumentRef(c10::SymIntArrayRef(kept.symbolic)), kept.two},
      {ArgumentRef(kept.symbolic[0]), 1},
      {ArgumentRef(kept.whole), 3},
      {ArgumentRef(kept.real), 3.0},
      {ArgumentRef(kept.flag), true},
      {ArgumentRef(kept.one), 1},
      {ArgumentRef(kept.dtype), static_cast<int64_t>(at::kDouble)},
      {ArgumentRef(at::kFloat), static_cast<int64_t>(at::kFloat)},
      {ArgumentRef(at::MemoryFormat::ChannelsLast),
       static_cast<int64_t>(at::MemoryFormat::ChannelsLast)},
      {ArgumentRef(at::kStrided), static_cast<int64_t>(at::kStrided)},
  };
}

TEST(ArgumentRefTest, EqualsWhatItEqualsBoxed) {
  const Kept kept;
  const auto all = constants(kept);
  int equal = 0;
  for (const auto& [argument, boxed] : all) {
    for (const auto& [other, constant] : all) {
      const bool expected = graph::same_constant(boxed, constant);
      EXPECT_EQ(argument.same(constant), expected) << boxed << " " << constant;
      EXPECT_EQ(ArgumentRef(boxed).same(constant), expected)
          << boxed << " " << constant;
      equal += expected ? 1 : 0;
    }
    EXPECT_FALSE(argument.is_none()) << boxed;
    EXPECT_EQ(argument.tensor(), nullptr) << boxed;
    EXPECT_EQ(argument.list_size().has_value(), boxed.isList()) << boxed;
    ASSERT_EQ(argument.list_size(), ArgumentRef(boxed).list_size()) << boxed;
    for (size_t k = 0; k < argument.list_size().value_or(0); ++k) {
      const c10::IValue element = boxed.toListRef()[k];
      EXPECT_TRUE(argument.element(k).same(element)) << boxed << " at " << k;
      EXPECT_TRUE(ArgumentRef(boxed).element(k).same(element)) << boxed;
    }
  }
  EXPECT_GT(equal, static_cast<int>(all.size()));
}

TEST(ArgumentRefTest, NoneAndTensors) {
  EXPECT_TRUE(ArgumentRef(std::optional<double>()).is_none());
  EXPECT_TRUE(ArgumentRef(c10::OptionalArrayRef<int64_t>()).is_none());
  EXPECT_FALSE(ArgumentRef(std::optional<double>()).same(0.0));
  const auto x = torch::ones({2});
  EXPECT_EQ(ArgumentRef(x).tensor(), &x);
  const std::optional<at::Tensor> y = x;
  EXPECT_EQ(ArgumentRef(y).tensor(), &*y);
  EXPECT_TRUE(ArgumentRef(std::optional<at::Tensor>()).is_none());
  const at::Tensor undefined;
  EXPECT_EQ(ArgumentRef(undefined).tensor(), &undefined);
  EXPECT_TRUE(ArgumentRef(c10::IValue()).is_none());
  const c10::IValue boxed = x;
  EXPECT_EQ(ArgumentRef(boxed).tensor(), &boxed.toTensor());
  const c10::IValue list = std::vector<at::Tensor>{x, undefined};
  ASSERT_EQ(ArgumentRef(list).list_size(), 2U);
  EXPECT_TRUE(ArgumentRef(list).element(0).tensor()->is_same(x));
  EXPECT_FALSE(ArgumentRef(list).element(1).tensor()->defined());
}

// What boxed is compared by other means equals nothing, so that it is boxed.
TEST(ArgumentRefTest, WhatHasNoFormEqualsNothing) {
  const at::Scalar complex(c10::complex<double>(0, 1));
  EXPECT_FALSE(ArgumentRef(complex).same(complex));
  const c10::Device device(c10::kCPU);
  EXPECT_FALSE(ArgumentRef(device).same(device));
  EXPECT_FALSE(ArgumentRef(std::optional<c10::Device>(device)).is_none());
  EXPECT_FALSE(
      ArgumentRef(std::optional<at::Generator>(at::Generator())).is_none());
}

} // namespace
} // namespace temper::capture
