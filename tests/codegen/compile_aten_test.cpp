// The aten backend against the reference run: hand-made cases.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "codegen/compile_aten.h"
#include "graph/skeleton.h"
#include "passes/unsupported.h"
#include "support/raw_builder.h"
#include "support/run_artifact.h"

namespace temper::codegen {
namespace {

using graph::Role;
using support::compiled_equals_raw;
using support::count_copies;
using support::count_instructions;
using support::flag;
using support::ints;
using support::none;
using support::num;
using support::RawBuilder;

at::Tensor random(at::IntArrayRef sizes) {
  return torch::randn(sizes);
}

TEST(CompileAten, RunsAChainOfPureOps) {
  RawBuilder b;
  const at::Tensor x = random({4, 3});
  const at::Tensor w = random({5, 3});
  const at::Tensor bias = random({5});
  const auto vx = b.input(x, "x");
  const auto vw = b.input(w, "w", Role::kParameter);
  const auto vb = b.input(bias, "bias", Role::kParameter);
  const auto wt = b.call1("aten::t", {vw});
  const auto y = b.call1("aten::addmm", {vb, vx, wt});
  b.output(b.call1("aten::relu", {y}));
  EXPECT_TRUE(compiled_equals_raw(b.graph(), {x, w, bias}));
}

TEST(CompileAten, WritesToFreshValuesInPlace) {
  RawBuilder b;
  const at::Tensor x = random({4, 3});
  const auto vx = b.input(x, "x");
  const auto y = b.call1("aten::mul.Tensor", {vx, vx});
  b.call("aten::add_.Tensor", {y, vx});
  b.call("aten::relu_", {y});
  b.output(y);
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {x}));
  EXPECT_EQ(count_copies(*compile_aten(raw)->forward), 0);
}

TEST(CompileAten, AWriteThroughAViewChangesItsBase) {
  RawBuilder b;
  const at::Tensor x = random({4, 3});
  const auto vx = b.input(x, "x");
  const auto y = b.call1("aten::mul.Tensor", {vx, vx});
  const auto row =
      b.call1("aten::select.int", {y, num(int64_t{0}), num(int64_t{1})});
  const auto part = b.call1(
      "aten::slice.Tensor",
      {row, num(int64_t{0}), num(int64_t{1}), num(int64_t{3})});
  b.call("aten::zero_", {part});
  b.call("aten::add_.Scalar", {row, num(2.0)});
  b.output(b.call1("aten::neg", {y}));
  b.output(b.call1("aten::t", {y}));
  b.output(part);
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {x}));
  const auto artifact = compile_aten(raw);
  EXPECT_EQ(count_copies(*artifact->forward), 0);
  EXPECT_EQ(artifact->forward->instructions.size(), raw.ops.size());
}

TEST(CompileAten, BatchNormWritesItsStatisticsInPlace) {
  RawBuilder b;
  const at::Tensor x = random({4, 3, 2, 2});
  const at::Tensor w = random({3});
  const at::Tensor mean = random({3});
  const at::Tensor var = torch::rand({3});
  const at::Tensor seen = torch::zeros({}, torch::kLong);
  const auto vx = b.input(x, "x");
  const auto vw = b.input(w, "w", Role::kParameter);
  const auto vm = b.input(mean, "mean", Role::kBuffer);
  const auto vv = b.input(var, "var", Role::kBuffer);
  const auto vs = b.input(seen, "seen", Role::kBuffer);
  b.call("aten::add_.Scalar", {vs, num(int64_t{1})});
  const auto y = b.call(
      "aten::native_batch_norm",
      {vx, vw, vw, vm, vv, flag(true), num(0.1), num(1e-5)});
  b.output(y[0]);
  const auto raw = b.graph();
  ASSERT_EQ(raw.mutations.size(), 3);
  EXPECT_TRUE(compiled_equals_raw(raw, {x, w, mean, var, seen}));
  EXPECT_EQ(count_copies(*compile_aten(raw)->forward), 0);
}

TEST(CompileAten, AKeyValueCacheIsWrittenInPlace) {
  RawBuilder b;
  const at::Tensor cache = random({8, 4});
  const at::Tensor k = random({1, 4});
  const auto vc = b.input(cache, "cache", Role::kBuffer);
  const auto vk = b.input(k, "k");
  const auto slot = b.call1(
      "aten::slice.Tensor",
      {vc, num(int64_t{0}), num(int64_t{3}), num(int64_t{4})});
  b.call("aten::copy_", {slot, vk});
  const auto seen = b.call1(
      "aten::slice.Tensor",
      {vc, num(int64_t{0}), num(int64_t{0}), num(int64_t{4})});
  b.output(b.call1("aten::mul.Tensor", {seen, seen}));
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {cache, k}));
  const auto artifact = compile_aten(raw);
  EXPECT_EQ(count_copies(*artifact->forward), 1); // the recorded one
  EXPECT_EQ(artifact->forward->instructions.size(), raw.ops.size());
}

TEST(CompileAten, AnOptimizerStepIsWrittenInPlace) {
  RawBuilder b;
  const at::Tensor p = random({4});
  const at::Tensor g = random({4});
  const at::Tensor m = random({4});
  const auto vp = b.input(p, "p", Role::kParameter);
  const auto vg = b.input(g, "g");
  const auto vm = b.input(m, "m", Role::kBuffer);
  b.call("aten::mul_.Scalar", {vm, num(0.9)});
  b.call("aten::add_.Tensor", {vm, vg, num(0.1)});
  const auto d = b.call1("aten::sqrt", {b.call1("aten::abs", {vm})});
  b.call("aten::addcdiv_", {vp, vm, d, num(-0.01)});
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {p, g, m}));
  EXPECT_EQ(count_copies(*compile_aten(raw)->forward), 0);
}

TEST(CompileAten, AnInputThatRequiresGradIsWrittenByTheCaller) {
  RawBuilder b;
  const at::Tensor x = random({4});
  const auto vx = b.input(x, "x");
  b.call("aten::mul_.Scalar", {vx, num(2.0)});
  b.output(b.call1("aten::exp", {vx}));
  b.mutate_as_output(0);
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {x}));
  const auto artifact = compile_aten(raw);
  EXPECT_EQ(count_copies(*artifact->forward), 1);
}

TEST(CompileAten, OutVariantsAndListWritesArePlaced) {
  RawBuilder b;
  const at::Tensor x = random({4, 3});
  const at::Tensor y = random({4, 3});
  const auto vx = b.input(x, "x");
  const auto vy = b.input(y, "y", Role::kBuffer);
  const auto buffer =
      b.call1("aten::empty.memory_format", {ints({4, 3}), num(int64_t{6})});
  b.call("aten::add.out", {vx, vx, num(int64_t{1}), buffer});
  using List = std::vector<graph::ValueId>;
  b.call("aten::_foreach_add_.Scalar", {List{buffer, vy}, num(2.5)});
  b.output(buffer);
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {x, y}));
  EXPECT_EQ(count_copies(*compile_aten(raw)->forward), 0);
}

TEST(CompileAten, RandomNumbersComeInOrder) {
  RawBuilder b;
  const at::Tensor x = random({40});
  const auto vx = b.input(x, "x");
  const auto mask = b.call1("aten::empty_like", {vx});
  b.call("aten::bernoulli_.float", {mask, num(0.5)});
  const auto unused = b.call1("aten::rand_like", {vx});
  static_cast<void>(unused);
  const auto noise = b.call1("aten::randn_like", {vx});
  const auto y = b.call1("aten::mul.Tensor", {vx, mask});
  b.output(b.call1("aten::add.Tensor", {y, noise}));
  EXPECT_TRUE(compiled_equals_raw(b.graph(), {x}));
}

TEST(CompileAten, DistinctInputsInOneMemoryMayOnlyBeRead) {
  const at::Tensor x = random({4});
  const at::Tensor half = x.slice(0, 0, 2);
  for (const bool write : {false, true}) {
    RawBuilder b;
    const auto vx = b.input(x, "x");
    const auto vh = b.input(half, "half");
    if (write) {
      b.call("aten::relu_", {vh});
    }
    b.output(b.call1("aten::neg", {vx}));
    b.output(vh);
    if (write) {
      EXPECT_THROW(compile_aten(b.graph()), passes::Unsupported);
    } else {
      EXPECT_TRUE(compiled_equals_raw(b.graph(), {x, half}));
    }
  }
}

TEST(CompileAten, MetadataChangesAreUnsupported) {
  RawBuilder b;
  const auto vx = b.input(random({4, 3}), "x");
  const auto y = b.call1("aten::neg", {vx});
  b.call("aten::t_", {y});
  b.output(y);
  try {
    compile_aten(b.graph());
    FAIL();
  } catch (const passes::Unsupported& e) {
    EXPECT_STREQ(
        e.what(), "aten::t_ changes sizes, strides or storage of a tensor");
  }
}

TEST(CompileAten, RunsABackward) {
  RawBuilder b;
  const at::Tensor x = random({4, 3});
  const at::Tensor w = random({5, 3});
  const auto vx = b.input(x, "x");
  const auto vw = b.input(w, "w", Role::kParameter);
  const auto wt = b.call1("aten::t", {vw});
  const auto y = b.call1("aten::relu", {b.call1("aten::mm", {vx, wt})});
  b.output(b.call1("aten::sum", {y}));
  const at::Tensor t = torch::ones({});
  const auto vt = b.tangent(0, t);
  b.begin_segment({vt});
  const auto g = b.call1("aten::expand", {vt, ints({4, 5})});
  const auto gz = b.call1("aten::threshold_backward", {g, y, num(int64_t{0})});
  const auto gt = b.call1("aten::t", {gz});
  b.deliver(b.call1("aten::mm", {gt, vx}), 1);
  b.deliver(b.call1("aten::mm", {gz, b.call1("aten::t", {wt})}), 0);
  b.end_segment();
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {x, w, t}));
  const auto artifact = compile_aten(raw);
  ASSERT_EQ(artifact->saved.size(), 3); // x, w and the relu's result
  int inputs = 0;
  for (const runtime::Saved& saved : artifact->saved) {
    inputs += saved.kind == runtime::Saved::Kind::kInput ? 1 : 0;
  }
  EXPECT_EQ(inputs, 2);
}

TEST(CompileAten, PassesTangentsThroughAndCarriesBetweenSegments) {
  RawBuilder b;
  const at::Tensor x = random({4});
  const auto vx = b.input(x, "x");
  const auto y = b.call1("aten::exp", {vx});
  b.output(y);
  const at::Tensor t = random({4});
  const auto vt = b.tangent(0, t);
  b.begin_segment({vt});
  const auto g = b.call1("aten::mul.Tensor", {vt, y});
  b.deliver(vt);
  b.deliver(g);
  b.deliver(g);
  b.deliver(vx);
  b.end_segment();
  b.begin_segment({});
  b.deliver(b.call1("aten::add.Tensor", {g, vt}));
  b.end_segment();
  const auto raw = b.graph();
  EXPECT_TRUE(compiled_equals_raw(raw, {x, t}));
  const auto artifact = compile_aten(raw);
  EXPECT_EQ(artifact->num_carried, 2);
  ASSERT_EQ(artifact->saved.size(), 2);
}

} // namespace
} // namespace temper::codegen
