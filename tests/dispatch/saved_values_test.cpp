// Values between a call and its backwards: who reads them last, and what has
// become of those that the user can reach.
#include "dispatch/saved_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace temper::dispatch {
namespace {

using Kind = runtime::Saved::Kind;
using testing::HasSubstr;
using torch::Tensor;

// Saved values, in this order.
enum : int32_t { kPrivate, kInput, kOutput, kTied, kNumSaved };

struct SavedValuesTest : testing::Test {
  SavedValuesTest() {
    auto artifact = std::make_shared<runtime::Artifact>();
    artifact->num_outputs = 1;
    artifact->saved = {
        {Kind::kPrivate, 1, -1, false},
        {Kind::kInput, 0, -1, false},
        {Kind::kOutput, 0, -1, false},
        {Kind::kPrivate, 2, 0, false}}; // Shares the output's memory.
    plan.artifact = artifact_ = artifact;
    auto trace = std::make_shared<capture::Trace>();
    trace->bindings.push_back({0, nullptr, 0});
    plan.trace = trace;
    // One reads at nodes 0 and 1 of the chain and all values, the other at node
    // 0 the private one alone. Of the call's two autograd nodes each backward
    // reads what one has saved.
    plan.backwards.resize(2);
    plan.readers = {{true, false}, {false, true}};
    plan.chain.runs.resize(2);
    plan.chain.runs[0].last_reader = {1, 1, 0, 0};
    plan.chain.runs[1].last_reader = {0, -1, -1, -1};
  }
  SavedValues make() {
    return {plan, {input}, {output}, {private_value, output.view({3, 1})}};
  }
  Tensor take(SavedValues& values, int32_t saved, int32_t node) const {
    return values.take(plan.chain.runs[0], saved, node);
  }
  void expect_error(
      SavedValues& values,
      int32_t saved,
      const std::string& message) const {
    try {
      take(values, saved, 1);
      ADD_FAILURE() << saved << " was there, expected: " << message;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(message)) << saved;
    }
  }

  std::shared_ptr<runtime::Artifact> artifact_;
  Plan plan;
  Tensor input = torch::rand({3}).requires_grad_();
  Tensor output = torch::rand({3});
  Tensor private_value = torch::rand({3});
  const std::vector<bool> all_ran{true, true};
};

constexpr const char* kTwice = "backward through the graph a second time";
constexpr const char* kModified = "modified by an inplace operation";

TEST_F(SavedValuesTest, AreTheTensorsThatWereSaved) {
  auto values = make();
  values.begin(plan, 0, nullptr);
  EXPECT_TRUE(take(values, kPrivate, 0).is_same(private_value));
  // Weights as they are; of what has a history its memory.
  EXPECT_TRUE(take(values, kInput, 0).is_same(input));
  EXPECT_TRUE(take(values, kOutput, 0).is_alias_of(output));
  EXPECT_FALSE(take(values, kOutput, 0).is_same(output));
  EXPECT_TRUE(take(values, kTied, 0).is_alias_of(output));
  EXPECT_EQ(take(values, kTied, 0).dim(), 2);
}

TEST_F(SavedValuesTest, OfInputsWithAHistoryOrSeenThroughViewsTheMemoryIsKept) {
  const auto leaf = input;
  input = leaf * 2;
  auto values = make();
  values.begin(plan, 0, nullptr);
  const auto memory = take(values, kInput, 0);
  EXPECT_TRUE(memory.is_alias_of(input));
  EXPECT_FALSE(memory.grad_fn());
  input = leaf;
  artifact_->saved[kInput].only_views = true;
  auto views = make();
  views.begin(plan, 0, nullptr);
  EXPECT_FALSE(take(views, kInput, 0).is_same(leaf));
  EXPECT_TRUE(take(views, kInput, 0).is_alias_of(leaf));
}

TEST_F(SavedValuesTest, GoWithTheirLastReader) {
  auto values = make();
  values.begin(plan, 0, &all_ran);
  const auto uses = private_value.use_count();
  EXPECT_TRUE(take(values, kPrivate, 0).is_same(private_value));
  EXPECT_EQ(private_value.use_count(), uses);
  EXPECT_TRUE(take(values, kPrivate, 1).is_same(private_value));
  EXPECT_EQ(private_value.use_count(), uses - 1);
  expect_error(values, kPrivate, kTwice);
  EXPECT_TRUE(take(values, kInput, 1).is_same(input));
  expect_error(values, kInput, kTwice);
  take(values, kOutput, 0);
  expect_error(values, kOutput, kTwice);
  take(values, kTied, 0);
  expect_error(values, kTied, kTwice);
}

TEST_F(SavedValuesTest, StayWhereTheGraphIsRetained) {
  auto values = make();
  for (int i = 0; i < 2; ++i) {
    values.begin(plan, 0, nullptr);
    for (int32_t saved = 0; saved < kNumSaved; ++saved) {
      for (int32_t node = 0; node < 2; ++node) {
        EXPECT_TRUE(take(values, saved, node).defined()) << saved;
      }
    }
  }
  // The last one says that it is.
  values.begin(plan, 0, &all_ran);
  take(values, kPrivate, 1);
  expect_error(values, kPrivate, kTwice);
}

TEST_F(SavedValuesTest, StayWhereAnotherBackwardMayComeThatReadsThem) {
  auto values = make();
  // The node at which the other one reads has not run.
  const std::vector<bool> first_ran{true, false};
  values.begin(plan, 0, &first_ran);
  take(values, kPrivate, 1);
  EXPECT_TRUE(take(values, kPrivate, 1).defined());
  take(values, kInput, 1);
  expect_error(values, kInput, kTwice);
  // The other one is the last.
  values.begin(plan, 1, &all_ran);
  values.take(plan.chain.runs[1], kPrivate, 0);
  expect_error(values, kPrivate, kTwice);
}

TEST_F(SavedValuesTest, ChangedOnesRaiseAutogradsError) {
  auto values = make();
  values.begin(plan, 0, nullptr);
  private_value.add_(1); // Nobody else has it.
  EXPECT_TRUE(take(values, kPrivate, 0).defined());
  output.add_(1);
  expect_error(values, kOutput, kModified);
  expect_error(values, kTied, kModified);
  EXPECT_TRUE(take(values, kInput, 0).defined());
  const torch::NoGradGuard no_grad;
  input.add_(1);
  expect_error(values, kInput, kModified);
}

} // namespace
} // namespace temper::dispatch
