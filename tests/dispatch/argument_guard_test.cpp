// What an ArgumentGuard sees of the tensors of a call.
#include "dispatch/argument_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <regex>
#include <string>

namespace temper::dispatch {
namespace {

using testing::HasSubstr;
using Tensors = std::vector<torch::Tensor>;

// Metadata needs no device, but two indices need a device type that has them.
torch::Tensor on_cuda(int8_t index) {
  const torch::Device device(torch::kCUDA, index);
  auto impl = c10::make_intrusive<c10::TensorImpl>(
      c10::Storage(
          c10::Storage::use_byte_size_t(),
          16,
          c10::DataPtr(nullptr, device),
          /*allocator=*/nullptr,
          /*resizable=*/false),
      c10::DispatchKeySet(c10::DispatchKey::CUDA),
      caffe2::TypeMeta::Make<float>());
  impl->set_sizes_contiguous({4});
  return torch::Tensor(std::move(impl));
}

class ArgumentGuardTest : public testing::Test {
 protected:
  ArgumentGuardTest() {
    watch.add_module(*net);
    state = watch.take();
  }
  // A call like `was` is proved; is `now` such a call?
  void expect_match(const Tensors& was, const Tensors& now) {
    const ArgumentGuard guard(was, *state);
    EXPECT_TRUE(guard.matches(now, *state)) << guard.difference(now, *state);
    EXPECT_EQ(guard.difference(now, *state), "");
  }
  void expect_mismatch(
      const Tensors& was,
      const Tensors& now,
      const std::string& text) {
    const ArgumentGuard guard(was, *state);
    EXPECT_FALSE(guard.matches(now, *state));
    auto difference = guard.difference(now, *state);
    for (const char* name : {"x", "y", "z"}) {
      const auto number = std::to_string(*name - 'x');
      difference = std::regex_replace(
          difference, std::regex("argument " + number), name);
    }
    EXPECT_THAT(difference, HasSubstr(text));
    expect_match(was, was);
  }

  torch::nn::Sequential net{torch::nn::Linear(4, 4), torch::nn::Linear(4, 4)};
  torch::Tensor weight = net->parameters()[0];
  Watch watch;
  std::shared_ptr<const Snapshot> state;
};

TEST_F(ArgumentGuardTest, FreshTensorsOfEqualMetadataMatch) {
  expect_match({}, {});
  expect_match(
      {torch::ones({2, 3}), torch::zeros({4}, torch::kLong)},
      {torch::rand({2, 3}), torch::ones({4}, torch::kLong)});
  expect_match({torch::Tensor()}, {torch::Tensor()});
  expect_match(
      {torch::ones({1, 2, 3, 4, 5, 6})}, {torch::zeros({1, 2, 3, 4, 5, 6})});
}

TEST_F(ArgumentGuardTest, MetadataIsSeen) {
  const torch::Tensor x = torch::ones({2, 64});
  expect_mismatch({x}, {x, x}, "there were 1 tensor arguments, now 2");
  expect_mismatch({x}, {torch::ones({2, 68})}, "x.size(1) was 64, now 68");
  expect_mismatch({x}, {torch::ones({64, 2}).t()}, "x.stride(0) was 64, now 1");
  expect_mismatch({x}, {torch::ones({128})}, "x.dim() was 2, now 1");
  expect_mismatch(
      {torch::ones({4})}, {torch::ones({4, 1})}, "x.dim() was 1, now 2");
  expect_mismatch(
      {on_cuda(0)}, {on_cuda(1)}, "x.device() was cuda:0, now cuda:1");
  expect_mismatch({x}, {x.to(torch::kHalf)}, "x.dtype() was Float, now Half");
  expect_mismatch({x}, {x.to(torch::kMeta)}, "x.device() was cpu, now meta");
  expect_mismatch({x}, {torch::Tensor()}, "x was a tensor, now undefined");
  expect_mismatch({torch::Tensor()}, {x}, "x was undefined, now a tensor");
  expect_mismatch(
      {x}, {x.clone().requires_grad_()}, "x.requires_grad() was false, now");
  const torch::Tensor leaf = x.clone().requires_grad_();
  expect_mismatch({leaf}, {leaf * 2}, "x has a grad_fn: was false, now true");
}

TEST_F(ArgumentGuardTest, ViewsInferenceAndBitsAreSeen) {
  const torch::Tensor x = torch::ones({2, 4});
  expect_mismatch({x}, {x.view({2, 4})}, "x.is_view() was false, now true");
  torch::Tensor in_no_grad;
  {
    torch::NoGradGuard guard;
    in_no_grad = x.view({2, 4});
  }
  expect_mismatch({x.view({2, 4})}, {in_no_grad}, "made in another grad mode");
  const auto in_inference_mode = [] {
    c10::InferenceMode mode;
    return torch::ones({2, 4});
  };
  expect_mismatch({x}, {in_inference_mode()}, "x.is_inference() was false");
  const torch::Tensor z = torch::ones({2}, torch::kComplexFloat);
  const torch::Tensor conj = z.clone().conj();
  expect_mismatch({z.view({2})}, {conj}, "x's dispatch keys");
  expect_mismatch({x.view({2, 4})}, {x._neg_view()}, "x's dispatch keys");
  torch::Tensor number = torch::ones({});
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  expect_mismatch({torch::ones({})}, {number}, "x is a wrapped number");
}

TEST_F(ArgumentGuardTest, OtherKindsOfTensorsMatchEachOtherOnly) {
  const torch::Tensor sparse = torch::eye(3).to_sparse();
  const torch::Tensor nested = torch::_nested_tensor_from_tensor_list(
      {torch::ones({2}), torch::ones({3})});
  for (const torch::Tensor& odd : {sparse, nested}) {
    const ArgumentGuard guard({odd}, *state);
    const ArgumentGuard plain({torch::ones({3, 3})}, *state);
    EXPECT_FALSE(guard.plain());
    EXPECT_TRUE(plain.plain());
    EXPECT_TRUE(guard.matches({sparse}, *state));
    EXPECT_TRUE(guard.matches({nested}, *state));
    EXPECT_EQ(guard.difference({sparse}, *state), "");
    EXPECT_FALSE(guard.matches({torch::ones({3, 3})}, *state));
    EXPECT_FALSE(guard.matches({torch::Tensor()}, *state));
    EXPECT_THAT(
        guard.difference({torch::ones({3, 3})}, *state),
        HasSubstr("argument 0 was a tensor that guards can't describe"));
    EXPECT_FALSE(plain.matches({odd}, *state));
    EXPECT_THAT(
        plain.difference({odd}, *state),
        HasSubstr("argument 0 is now a tensor that guards can't describe"));
  }
}

TEST_F(ArgumentGuardTest, TheSameTensorTwiceIsSeen) {
  const torch::Tensor x = torch::ones({4});
  const torch::Tensor y = torch::ones({4});
  expect_mismatch(
      {x, y}, {x, x}, "y was in a storage of its own, now the same");
  expect_mismatch({x, x}, {x, y}, "y was the same tensor as x, now");
  expect_match({x, x}, {y, y});
  EXPECT_FALSE(ArgumentGuard({x, y}, *state).aliased());
  EXPECT_FALSE(ArgumentGuard({x, x}, *state).aliased()); // One object.
  // Another object over the same memory is not the same tensor.
  const torch::Tensor a = y.detach();
  expect_mismatch({x, x}, {y, a}, "y was the same tensor as x, now in the");
  const torch::Tensor b = x.view({4});
  const torch::Tensor c = x.view({4});
  expect_mismatch({b, b}, {b, c}, "y was the same tensor as x, now in the");
}

TEST_F(ArgumentGuardTest, OverlapIsSeenWithItsDistance) {
  const torch::Tensor v = torch::ones({8});
  const auto slice = [](const torch::Tensor& of, int64_t from) {
    return of.slice(0, from, from + 4);
  };
  const torch::Tensor w = torch::ones({8});
  // C1: the first call without overlap, the second with.
  expect_mismatch(
      {slice(v, 0), slice(w, 2)},
      {slice(v, 0), slice(v, 2)},
      "y was in a storage of its own, now in the storage of x at distance 8");
  expect_mismatch(
      {slice(v, 0), slice(v, 2)},
      {slice(v, 0), slice(v, 4)},
      "at distance 8, now in the storage of x at distance 16");
  expect_mismatch(
      {slice(v, 0), slice(v, 2)}, {slice(v, 2), slice(v, 0)}, "distance -8");
  EXPECT_TRUE(ArgumentGuard({slice(v, 0), slice(v, 2)}, *state).aliased());
  EXPECT_FALSE(ArgumentGuard({slice(v, 0), slice(v, 4)}, *state).aliased());
  EXPECT_FALSE(ArgumentGuard({slice(v, 0), slice(w, 0)}, *state).aliased());
  // The batches of a loop: the same relation at other places.
  expect_match({slice(v, 0), slice(v, 1)}, {slice(w, 3), slice(w, 4)});
  expect_match({slice(v, 0)}, {slice(v, 4)});
}

TEST_F(ArgumentGuardTest, SharingIsSeenAmongThreeAndAcrossDtypes) {
  const torch::Tensor v = torch::ones({8});
  const torch::Tensor w = torch::ones({8});
  const auto part = [](const torch::Tensor& of) { return of.narrow(0, 0, 4); };
  expect_mismatch(
      {part(v), part(w), part(v)},
      {part(v), part(w), part(w)},
      "z was in the storage of x at distance 0, now in the storage of y");
  const auto bits = [](const torch::Tensor& of, int64_t from) {
    return of.view(torch::kShort).narrow(0, from, 4).detach();
  };
  expect_mismatch(
      {part(v), bits(w, 2)},
      {part(v), bits(v, 2)},
      "now in the storage of x at distance 4");
}

TEST_F(ArgumentGuardTest, AWatchedTensorAsArgumentIsSeen) {
  const torch::Tensor other = torch::ones({4, 4}, torch::requires_grad());
  expect_mismatch(
      {other}, {weight}, "x was in a storage of its own, now the tensor");
  expect_mismatch({weight}, {other}, "x was the tensor '0.weight', now in a");
  expect_mismatch(
      {weight}, {net->parameters()[2]}, "now the tensor '1.weight'");
  expect_match({weight}, {weight});
  EXPECT_FALSE(ArgumentGuard({weight}, *state).aliased());
}

TEST_F(ArgumentGuardTest, AViewOfAWatchedTensorIsSeen) {
  torch::NoGradGuard guard;
  const torch::Tensor other = torch::ones({4, 4}, torch::requires_grad());
  expect_mismatch(
      {other[0]},
      {weight[0]},
      "now in the storage of '0.weight' at distance 0");
  expect_mismatch({weight[0]}, {weight[1]}, "at distance 0, now in");
  expect_mismatch(
      {weight[0], weight[0]}, {weight[0], weight[1]}, "y was in the storage");
  EXPECT_TRUE(ArgumentGuard({weight[0]}, *state).aliased());
  EXPECT_FALSE(ArgumentGuard({other[0]}, *state).aliased());
}

TEST_F(ArgumentGuardTest, SharingFollowsAWatchedTensorToANewStorage) {
  torch::NoGradGuard no_grad;
  const torch::Tensor data = torch::ones({4, 4});
  const auto view = [](const torch::Tensor& of) { return of.data()[1]; };
  const ArgumentGuard apart({view(data)}, *state);
  const ArgumentGuard shared({view(weight)}, *state);
  const ArgumentGuard itself({weight}, *state);
  const torch::Tensor old = weight.data();
  weight.set_data(data);
  ASSERT_TRUE(watch.matches(*state)) << watch.difference(*state);
  EXPECT_FALSE(apart.matches({view(data)}, *state));
  EXPECT_TRUE(apart.matches({view(old)}, *state));
  EXPECT_TRUE(shared.matches({view(data)}, *state));
  EXPECT_FALSE(shared.matches({view(old)}, *state));
  EXPECT_TRUE(itself.matches({weight}, *state));
}

TEST_F(ArgumentGuardTest, TensorsOverTheSameForeignMemoryAreSeen) {
  std::array<float, 8> memory{};
  std::array<float, 8> apart{};
  const auto blob = [](std::array<float, 8>& from, size_t offset) {
    return torch::from_blob(from.data() + offset, {4});
  };
  expect_match({blob(memory, 0)}, {blob(apart, 0)});
  expect_mismatch(
      {blob(memory, 0), blob(apart, 0)},
      {blob(memory, 0), blob(memory, 2)},
      "y overlaps x");
  expect_mismatch(
      {blob(memory, 0), blob(memory, 2)},
      {blob(memory, 0), blob(memory, 1)},
      "y overlaps x in another way");
  expect_mismatch(
      {blob(memory, 0), blob(memory, 2)},
      {blob(memory, 0), blob(apart, 2)},
      "y no longer overlaps x");
  EXPECT_TRUE(
      ArgumentGuard({blob(memory, 0), blob(memory, 2)}, *state).aliased());
  EXPECT_FALSE(
      ArgumentGuard({blob(memory, 0), blob(memory, 4)}, *state).aliased());
  // Over memory of a watched tensor.
  expect_mismatch(
      {blob(memory, 0)},
      {torch::from_blob(weight.data_ptr<float>() + 4, {4})},
      "x overlaps '0.weight'");
}

TEST_F(ArgumentGuardTest, AliasingAmongWatchedTensorsAloneCounts) {
  EXPECT_FALSE(ArgumentGuard({}, *state).aliased());
  net->parameters()[2].set_data(weight.data());
  state = watch.take();
  EXPECT_TRUE(ArgumentGuard({}, *state).aliased());
}

TEST_F(ArgumentGuardTest, EmptyTensorsHaveNoMemoryToShare) {
  const torch::Tensor x = torch::ones({0, 4});
  expect_match(
      {x, torch::ones({4, 0})}, {torch::ones({0, 4}), torch::ones({4, 0})});
  EXPECT_FALSE(ArgumentGuard({x, x.view({4, 0})}, *state).aliased());
}

TEST_F(ArgumentGuardTest, ManyArgumentsMatch) {
  const torch::Tensor data = torch::ones({300, 4});
  Tensors slices;
  Tensors fresh;
  for (int64_t i = 0; i < 300; ++i) {
    slices.push_back(data[i]);
    fresh.push_back(torch::ones({1, 4})[0]);
  }
  expect_match(slices, slices);
  expect_match(fresh, fresh);
  EXPECT_FALSE(ArgumentGuard(fresh, *state).matches(slices, *state));
  EXPECT_FALSE(ArgumentGuard(slices, *state).matches(fresh, *state));
}

} // namespace
} // namespace temper::dispatch
