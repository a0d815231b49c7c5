// What is known of operators, checked on LibTorch's own.
#include "ops/op_info.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <vector>

#include "graph/build.h"
#include "ops/data_dependence.h"
#include "ops/hidden_writes.h"

namespace temper::ops {
namespace {

const OpInfo& of(const char* name) {
  return info(graph::find_op(name));
}

TEST(OpInfo, KnowsViewsBeyondTheirSchemas) {
  EXPECT_EQ(of("aten::view").alias, Alias::kView);
  EXPECT_EQ(of("aten::split.Tensor").alias, Alias::kView);
  EXPECT_EQ(of("aten::_unsafe_view").alias, Alias::kView);
  EXPECT_EQ(of("aten::_reshape_alias").alias, Alias::kView);
  EXPECT_EQ(of("aten::unsafe_split.Tensor").alias, Alias::kView);
  EXPECT_EQ(of("aten::reshape").alias, Alias::kMaybe);
  EXPECT_EQ(of("aten::contiguous").alias, Alias::kMaybe);
  EXPECT_EQ(of("aten::to.dtype").alias, Alias::kMaybe);
  EXPECT_EQ(of("aten::mm").alias, Alias::kFresh);
  EXPECT_EQ(of("aten::add_.Tensor").alias, Alias::kFresh);
  EXPECT_TRUE(of("aten::as_strided").absolute_view);
}

TEST(OpInfo, KnowsWhatViewsReallyDo) {
  // Every operator in the table of undeclared views does return a view.
  const at::Tensor x = torch::ones({4, 4});
  EXPECT_TRUE(at::_unsafe_view(x, {16}).is_alias_of(x));
  EXPECT_TRUE(at::_reshape_alias(x, {16}, {1}).is_alias_of(x));
  EXPECT_TRUE(at::unsafe_split(x, 2)[1].is_alias_of(x));
  EXPECT_TRUE(at::unsafe_split_with_sizes(x, {1, 3})[1].is_alias_of(x));
  EXPECT_TRUE(at::unsafe_chunk(x, 2)[1].is_alias_of(x));
}

TEST(OpInfo, KnowsEffects) {
  EXPECT_TRUE(of("aten::bernoulli_.float").rng);
  EXPECT_TRUE(of("aten::native_dropout").rng);
  EXPECT_TRUE(of("aten::rand_like").rng);
  EXPECT_FALSE(of("aten::mul.Tensor").rng);
  EXPECT_TRUE(of("aten::_assert_async").impure);
  EXPECT_FALSE(of("aten::mul.Tensor").impure);
  EXPECT_TRUE(of("aten::nonzero").data_dependent);
  EXPECT_TRUE(of("aten::_local_scalar_dense").data_dependent);
  EXPECT_TRUE(of("aten::resize_").changes_metadata);
  EXPECT_TRUE(of("aten::t_").changes_metadata);
  EXPECT_TRUE(of("aten::set_.source_Tensor").changes_metadata);
  EXPECT_TRUE(of("aten::mul.Tensor").cheap);
  EXPECT_FALSE(of("aten::mm").cheap);
  EXPECT_EQ(of("aten::add.out").schema_writes, std::vector<int32_t>{3});
  EXPECT_EQ(of("aten::copy_").old_content, OldContent::kUnused);
  EXPECT_EQ(of("aten::add_.Tensor").old_content, OldContent::kAddedTo);
  EXPECT_EQ(of("aten::mul_.Tensor").old_content, OldContent::kRead);
}

TEST(DataDependence, OfAnIndexIsThatOfAMask) {
  const at::Tensor integers = torch::tensor({0, 1});
  const at::Tensor mask = torch::tensor({true, false});
  const auto depends = [](const std::vector<at::Tensor>& indices) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& index : indices) {
      list.push_back(index.defined() ? std::optional(index) : std::nullopt);
    }
    const std::vector<c10::IValue> arguments{torch::ones({2, 2}), list};
    const auto op = graph::find_op("aten::index.Tensor");
    return may_depend_on_data(op) && depends_on_data(op, arguments.data());
  };
  EXPECT_FALSE(depends({integers}));
  EXPECT_FALSE(depends({at::Tensor(), integers}));
  EXPECT_FALSE(depends({integers.to(at::kInt), integers}));
  EXPECT_TRUE(depends({mask}));
  EXPECT_TRUE(depends({mask.to(at::kByte)}));
  EXPECT_TRUE(depends({integers, mask}));
}

TEST(DataDependence, OfRepeatsEndsWithTheSizeOfTheResult) {
  const auto op = graph::find_op("aten::repeat_interleave.Tensor");
  std::vector<c10::IValue> arguments{torch::tensor({1, 2}), c10::IValue()};
  EXPECT_TRUE(depends_on_data(op, arguments.data()));
  arguments[1] = 3;
  EXPECT_FALSE(depends_on_data(op, arguments.data()));
}

TEST(DataDependence, WithoutATag) {
  EXPECT_TRUE(
      may_depend_on_data(graph::find_op("aten::_pack_padded_sequence")));
  EXPECT_FALSE(may_depend_on_data(graph::find_op("aten::index_put_")));
  EXPECT_FALSE(may_depend_on_data(graph::find_op("aten::gather")));
}

TEST(HiddenWrites, OfBatchNormDependOnTraining) {
  const auto op = graph::find_op("aten::native_batch_norm");
  const at::Tensor x = torch::ones({2, 3});
  const at::Tensor s = torch::ones({3});
  const at::Tensor undefined;
  std::vector<c10::IValue> arguments = {
      x, undefined, undefined, s, s, true, 0.1, 1e-5};
  EXPECT_TRUE(may_write_hidden(op));
  EXPECT_EQ(hidden_writes(op, arguments.data()), (HiddenWrites{3, 4}));
  arguments[3] = c10::IValue();
  EXPECT_EQ(hidden_writes(op, arguments.data()), (HiddenWrites{4}));
  arguments[5] = false;
  EXPECT_TRUE(hidden_writes(op, arguments.data()).empty());
  EXPECT_FALSE(may_write_hidden(graph::find_op("aten::mm")));
}

// Runs many operators on tensors whose bytes are compared: none of LibTorch's
// norms writes what neither its schema nor the table says.
TEST(HiddenWrites, AreComplete) {
  const at::Tensor x = torch::randn({2, 3});
  for (const char* name :
       {"aten::native_batch_norm",
        "aten::_native_batch_norm_legit",
        "aten::_batch_norm_with_update",
        "aten::batch_norm_update_stats"}) {
    const auto op = graph::find_op(name);
    const auto& formals = op.schema().arguments();
    torch::jit::Stack stack;
    std::vector<at::Tensor> before;
    std::vector<at::Tensor> given;
    for (const c10::Argument& formal : formals) {
      const std::string& type = formal.type()->str();
      if (formal.name() == "input") {
        stack.emplace_back(x);
      } else if (type.rfind("Tensor", 0) == 0) {
        stack.emplace_back(torch::rand({3}));
      } else if (type == "bool") {
        stack.emplace_back(true);
      } else {
        stack.emplace_back(0.1);
      }
      const bool tensor = stack.back().isTensor();
      given.push_back(tensor ? stack.back().toTensor() : at::Tensor());
      before.push_back(tensor ? given.back().clone() : at::Tensor());
    }
    HiddenWrites expected = hidden_writes(op, stack.data());
    for (const int32_t i : info(op).schema_writes) {
      expected.push_back(i);
    }
    op.callBoxed(stack);
    for (size_t i = 0; i < given.size(); ++i) {
      if (given[i].defined()) {
        const bool known =
            std::count(
                expected.begin(), expected.end(), static_cast<int32_t>(i)) > 0;
        EXPECT_EQ(!given[i].equal(before[i]), known) << name << ' ' << i;
      }
    }
  }
}

} // namespace
} // namespace temper::ops
