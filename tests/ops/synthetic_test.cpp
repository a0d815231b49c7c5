// temper's own operators, called as the dispatcher calls them.
#include "ops/synthetic.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace temper::ops {
namespace {

// Its result; undefined if it has none.
at::Tensor call(const c10::OperatorHandle& op, torch::jit::Stack arguments) {
  op.callBoxed(arguments);
  return arguments.empty() ? at::Tensor() : arguments.at(0).toTensor();
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.dtype() == b.dtype() && a.sizes() == b.sizes() &&
      literal_bytes(a) == literal_bytes(b);
}

TEST(Synthetic, WrappedNumbersPromoteAsNumbersDo) {
  const auto x = torch::ones({2}, torch::kHalf);
  for (const at::Scalar& value :
       {at::Scalar(2.5), at::Scalar(3), at::Scalar(true)}) {
    const auto number = call(wrapped_number(), {value});
    EXPECT_TRUE(same(x * number, x * value)) << value;
    EXPECT_EQ(number.dim(), 0);
  }
}

TEST(Synthetic, LiteralsHaveTheBytesOfWhatTheyWereMadeOf) {
  const auto whole = torch::arange(-6, 6).reshape({3, 4});
  for (const auto dtype :
       {torch::kFloat,
        torch::kDouble,
        torch::kBFloat16,
        torch::kComplexFloat,
        torch::kLong,
        torch::kInt8,
        torch::kBool}) {
    const auto tensor = (whole / 7.0).to(dtype).t();
    const auto made = call(
        literal(),
        {literal_bytes(tensor), tensor.sizes(), static_cast<int64_t>(dtype)});
    EXPECT_TRUE(same(made, tensor)) << dtype;
    EXPECT_TRUE(made.equal(tensor)) << dtype;
    EXPECT_TRUE(made.is_contiguous());
  }
  const auto odd = torch::tensor({-0.0F, NAN, INFINITY});
  EXPECT_TRUE(same(call(literal(), {literal_bytes(odd), odd.sizes(), 6}), odd));
}

TEST(Synthetic, LiteralsRefuseTextOfAnotherLength) {
  try {
    call(literal(), {std::string("00ff"), std::vector<int64_t>{3}, 1});
    FAIL() << "it took two bytes for three";
  } catch (const std::exception& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("a literal of 3 bytes has 4 hex digits, expected two a byte"),
        std::string::npos)
        << error.what();
  }
}

TEST(Synthetic, WriteThroughChangesWhatTheViewSeesAndNothingElse) {
  const auto base = torch::arange(12.0).reshape({3, 4});
  const std::vector<at::Tensor> views = {
      base,
      base.t(),
      base.select(1, 2),
      base.slice(0, 1, 3, 1).slice(1, 0, 4, 2),
      base.diagonal(),
      base.select(0, 1).select(0, 1)};
  for (const auto& view : views) {
    const auto content = torch::randn(view.sizes());
    const auto expected = base.clone();
    expected.as_strided(view.sizes(), view.strides(), view.storage_offset())
        .copy_(content);
    const auto before = base.clone();
    const auto result = call(write_through(), {base, view, content});
    EXPECT_TRUE(same(result, expected)) << view.sizes();
    EXPECT_TRUE(same(base, before)) << view.sizes();
    EXPECT_FALSE(result.is_alias_of(base));
  }
}

TEST(Synthetic, CopiesOfMemoryHaveTheSameViews) {
  const auto memory = torch::arange(24.0);
  const std::vector<at::Tensor> tensors = {
      memory.view({4, 6}),
      memory.view({4, 6}).t(),
      memory.as_strided({3, 2}, {7, 2}, 3), // Gaps.
      memory.as_strided({4, 3}, {1, 1}, 2), // Overlaps.
      memory.narrow(0, 5, 1).expand({3, 4}),
      memory.narrow(0, 5, 0)};
  for (const auto& tensor : tensors) {
    for (const bool whole : {false, true}) {
      const auto copy = call(copy_memory(), {tensor, whole});
      EXPECT_TRUE(same(copy, tensor));
      EXPECT_EQ(copy.strides(), tensor.strides());
      EXPECT_FALSE(copy.is_alias_of(tensor));
      if (whole) {
        EXPECT_EQ(copy.storage_offset(), tensor.storage_offset());
        EXPECT_TRUE(same(
            copy.as_strided({24}, {1}, 0), tensor.as_strided({24}, {1}, 0)));
      }
    }
  }
}

TEST(Synthetic, ExpectLayoutLetsOnlyTheRecordedSizesAndStridesPass) {
  const std::string by = "other::op";
  const auto x = torch::zeros({2, 3});
  const auto expect = [&](const at::Tensor& tensor,
                          std::vector<int64_t> size,
                          std::vector<int64_t> stride) {
    call(expect_layout(), {tensor, std::move(size), std::move(stride), by});
  };
  EXPECT_NO_THROW(expect(x, {2, 3}, {3, 1}));
  EXPECT_NO_THROW(expect(x.t(), {3, 2}, {1, 3}));
  EXPECT_NO_THROW(expect(torch::zeros({}), {}, {}));
  EXPECT_THROW(expect(x, {3, 2}, {3, 1}), UnexpectedLayout);
  EXPECT_THROW(expect(x, {2}, {3}), UnexpectedLayout);
  EXPECT_THROW(expect(x.t(), {3, 2}, {2, 1}), UnexpectedLayout);
  try {
    expect(x, {5, 3}, {3, 1});
    FAIL() << "it let other sizes pass";
  } catch (const UnexpectedLayout& error) {
    EXPECT_EQ(
        error.reason(), "other::op returns other sizes from call to call");
    for (const char* part :
         {"[2, 3]", "[5, 3]", "other::op", "tag dynamic_output_shape"}) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << error.what();
    }
  }
}

} // namespace
} // namespace temper::ops
