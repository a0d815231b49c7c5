// What a compile that fails leaves behind, and what mutants change.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "codegen/backend.h"
#include "codegen/compile_aten.h"
#include "graph/build.h"
#include "graph/skeleton.h"
#include "passes/mutants.h"
#include "passes/test_hooks.h"
#include "runtime/artifact_store.h"
#include "support/raw_builder.h"
#include "support/run_artifact.h"
#include "temper/error.h"

namespace temper::codegen {
namespace {

using graph::Role;
using support::num;
using support::RawBuilder;

// x [4], a buffer that is added to, and a backward with two gradients.
struct Example {
  Example() {
    RawBuilder b;
    inputs = {torch::randn({4}), torch::randn({4}), torch::randn({4})};
    const auto copies = support::copy_inputs(inputs);
    const auto x = b.input(copies[0], "x");
    const auto buffer = b.input(copies[1], "buffer", Role::kBuffer);
    const auto y = b.call1("aten::gelu", {x});
    b.call("aten::add_.Tensor", {buffer, y, num(0.5)});
    b.output(b.call1("aten::mul.Tensor", {y, buffer}));
    const auto t = b.tangent(0, copies[2]);
    b.begin_segment({t});
    b.deliver(b.call1("aten::gelu_backward", {t, x}), 0);
    b.deliver(b.call1("aten::mul.Tensor", {t, y}), 1);
    b.end_segment();
    raw = b.graph();
  }

  graph::Graph raw;
  std::vector<at::Tensor> inputs;
};

void throw_here(graph::Graph&) {
  throw std::runtime_error("here");
}

TEST(Failures, ACompileThatThrewAtAnyStageCanBeDoneAgain) {
  const Example example;
  const graph::Skeleton skeleton = graph::skeleton(example.raw);
  runtime::ArtifactStore store;
  passes::TestHooks& hooks = passes::test_hooks();
  for (auto* hook : {&hooks.functional, &hooks.placed}) {
    *hook = &throw_here;
    EXPECT_THROW(
        store.get(
            skeleton, "aten", [&](bool) { return compile_aten(example.raw); }),
        std::runtime_error);
    *hook = nullptr;
    EXPECT_EQ(store.size(), 0);
  }
  EXPECT_NE(
      store.get(
          skeleton, "aten", [&](bool) { return compile_aten(example.raw); }),
      nullptr);
  EXPECT_TRUE(support::compiled_equals_raw(example.raw, example.inputs));
}

TEST(Failures, EachMutantIsNoticed) {
  namespace mutants = passes::mutants;
  const Example example;
  for (const auto mutant :
       {&mutants::change_activation,
        &mutants::drop_mutation,
        &mutants::swap_deliveries}) {
    const mutants::Scope scope(mutant);
    EXPECT_FALSE(support::compiled_equals_raw(example.raw, example.inputs));
    EXPECT_GT(mutants::Scope::changed(), 0);
  }
  EXPECT_TRUE(support::compiled_equals_raw(example.raw, example.inputs));

  // Frozen to the value of the trace: seen with another value only.
  graph::Graph other = example.raw;
  const mutants::Scope scope(&mutants::freeze_slot);
  const auto artifact = compile_aten(example.raw);
  other.slots[0] = 0.25;
  const auto a_inputs = support::copy_inputs(example.inputs);
  const auto b_inputs = support::copy_inputs(example.inputs);
  const auto expected = support::run_raw(other, a_inputs);
  const auto got = support::run_artifact(
      *artifact, other, b_inputs, graph::skeleton(other).slots);
  EXPECT_FALSE(support::same_results(expected, a_inputs, got, b_inputs));
}

TEST(Failures, AnEpilogueCopyThatIsSkippedIsNoticed) {
  RawBuilder b;
  const at::Tensor cache = torch::zeros({4});
  const at::Tensor x = torch::ones({4});
  const auto vc = b.input(cache, "cache", Role::kBuffer);
  const auto vx = b.input(x, "x");
  b.call("aten::copy_", {vc, vx});
  const auto raw = b.graph();
  const passes::mutants::Scope scope(&passes::mutants::skip_epilogue_copy);
  EXPECT_FALSE(support::compiled_equals_raw(raw, {torch::zeros({4}), x}));
  EXPECT_EQ(passes::mutants::Scope::changed(), 1);
}

TEST(Backends, AreFoundByNameAndBuiltInOnesStay) {
  EXPECT_TRUE(find_backend("aten"));
  EXPECT_FALSE(find_backend("no such backend"));
  register_backend("mine", &compile_aten);
  EXPECT_TRUE(find_backend("mine"));
  EXPECT_EQ(backend_names(), (std::vector<std::string>{"aten", "mine"}));
  const auto error_of = [](const std::string& name, Backend backend) {
    try {
      register_backend(name, std::move(backend));
    } catch (const temper::Error& error) {
      return std::string(error.what_without_backtrace());
    }
    return std::string("no error");
  };
  for (const std::string name : {"aten", "eager"}) {
    EXPECT_EQ(
        error_of(name, &compile_aten),
        "temper: backend '" + name +
            "' is built in and can't be replaced; register yours under another "
            "name");
  }
  EXPECT_EQ(
      error_of("mine", nullptr), "temper: backend 'mine' is an empty function");
  EXPECT_TRUE(find_backend("mine")); // The first one stays.
}

} // namespace
} // namespace temper::codegen
