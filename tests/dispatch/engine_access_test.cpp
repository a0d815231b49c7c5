// Edges taken out of a running backward: nodes behind them are not visited, and
// what also waits for others is.
#include "dispatch/engine_access.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

namespace temper::dispatch {
namespace {

using torch::Tensor;
using torch::autograd::variable_list;

// A node with two inputs that gives its gradient to `first`, and calls
// `between` before the engine sees what it sends.
struct Fork : torch::autograd::Node {
  std::function<void(Fork&)> between;
  variable_list apply(variable_list&& gradients) override {
    between(*this);
    variable_list result{gradients[0]};
    result.resize(next_edges().size());
    return result;
  }
};

// y whose history is a Fork to `first` and `second`.
Tensor fork(
    const Tensor& first,
    const Tensor& second,
    std::function<void(Fork&)> between) {
  auto node = c10::make_intrusive<Fork>();
  node->between = std::move(between);
  node->set_next_edges(
      {torch::autograd::impl::gradient_edge(first),
       torch::autograd::impl::gradient_edge(second)});
  Tensor y = first.detach().clone();
  node->add_input_metadata(y);
  torch::autograd::impl::set_gradient_edge(y, {std::move(node), 0});
  return y;
}

void take_out_second(Fork& node) {
  auto* task = current_graph_task();
  ASSERT_NE(task, nullptr);
  std::vector<torch::autograd::Node*> waiting;
  if (remove_edge(*task, node.next_edge(1).function.get(), waiting)) {
    node.next_edges()[1] = {};
  }
  for (auto* each : waiting) {
    node.next_edges().emplace_back(each->getptr(), 0);
  }
}

struct EngineAccess : testing::Test {
  Tensor leaf(int& calls) {
    auto x = torch::randn({3}).requires_grad_();
    x.register_hook([&calls](const Tensor&) { ++calls; });
    return x;
  }
  int first_calls = 0;
  int second_calls = 0;
  Tensor a = leaf(first_calls);
  Tensor b = leaf(second_calls);
};

TEST_F(EngineAccess, ThereIsNoTaskOutsideOfABackward) {
  EXPECT_EQ(current_graph_task(), nullptr);
}

TEST_F(EngineAccess, ANodeThatOnlyTheEdgeLedToIsNotVisited) {
  fork(a.sin(), b.exp().sin(), take_out_second).sum().backward();
  EXPECT_EQ(first_calls, 1);
  EXPECT_EQ(second_calls, 0);
  EXPECT_TRUE(a.grad().defined());
  EXPECT_FALSE(b.grad().defined());
}

TEST_F(EngineAccess, WhatIsAlsoReachedOtherwiseIsVisitedOnce) {
  // b through the edge and past it, after it and before it.
  const auto shared = b.exp();
  const auto y = fork(a.sin(), shared.sin(), take_out_second);
  (y.sum() + shared.sum()).backward();
  EXPECT_EQ(second_calls, 1);
  EXPECT_TRUE(torch::equal(b.grad(), b.exp().detach()));
}

TEST_F(EngineAccess, ANodeThatHoldsAGradientAlreadyIsVisited) {
  // The outer use runs first (it was made last) and leaves its gradient with
  // b's exp, which then waits for the edge alone.
  const auto shared = b.exp();
  const auto y = fork(a.sin(), shared.sin(), take_out_second);
  (shared.cos().sum() + y.sum()).backward();
  EXPECT_EQ(second_calls, 1);
  EXPECT_TRUE(torch::allclose(
      b.grad(), (-b.exp().sin() * b.exp()).detach(), 1e-6, 1e-6));
}

TEST_F(EngineAccess, ANodeFurtherBehindThatHoldsAGradientIsVisited) {
  // What lies between is not: its hook would be called.
  int between_calls = 0;
  const auto shared = b.exp();
  const auto between = shared * 2;
  between.register_hook([&](const Tensor&) { ++between_calls; });
  const auto y = fork(a.sin(), between.sin(), take_out_second);
  (shared.cos().sum() + y.sum()).backward();
  EXPECT_EQ(second_calls, 1);
  EXPECT_EQ(between_calls, 0);
  EXPECT_TRUE(torch::allclose(
      b.grad(), (-b.exp().sin() * b.exp()).detach(), 1e-6, 1e-6));
}

TEST_F(EngineAccess, InputsThatAreNotAskedForAreLeftToTheEngine) {
  bool removed = true;
  const auto y = fork(a.sin(), b.sin(), [&](Fork& node) {
    std::vector<torch::autograd::Node*> waiting;
    removed = remove_edge(
        *current_graph_task(), node.next_edge(1).function.get(), waiting);
  });
  const auto gradients = torch::autograd::grad({y.sum()}, {a});
  EXPECT_FALSE(removed);
  EXPECT_TRUE(gradients[0].defined());
}

TEST_F(EngineAccess, PendingEdgesAndGradientsAreCounted) {
  const auto shared = a.exp();
  int pending = 0;
  bool has = false;
  auto* node = shared.grad_fn().get();
  const auto y = fork(shared, shared, [&](Fork&) {
    pending = pending_edges(*current_graph_task(), node);
    has = has_gradient(*current_graph_task(), node, 0);
  });
  (y.sum() + shared.sum()).backward();
  // The sum was made last, so it has run: its edge is done.
  EXPECT_EQ(pending, 2);
  EXPECT_TRUE(has);
}

TEST_F(EngineAccess, EachThreadSeesItsOwnTask) {
  uint64_t other = 0;
  const auto y = fork(a.sin(), b.sin(), [&](Fork&) {
    const auto* mine = current_graph_task();
    std::thread([&] {
      EXPECT_EQ(current_graph_task(), nullptr);
      auto c = torch::randn({3}).requires_grad_();
      const auto z = fork(
          c.sin(), c.cos(), [&](Fork&) { other = current_graph_task()->id_; });
      z.sum().backward();
    }).join();
    EXPECT_EQ(current_graph_task(), mine);
    EXPECT_NE(mine->id_, other);
  });
  y.sum().backward();
  EXPECT_NE(other, 0U);
}

} // namespace
} // namespace temper::dispatch
