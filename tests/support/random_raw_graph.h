// Random raw graphs, made by running operators: views, writes through views,
// writes to inputs, out=, batch norm, random numbers, several outputs,
// backward segments.
#pragma once

#include <torch/torch.h>

#include <random>
#include <string>
#include <vector>

#include "support/raw_builder.h"

namespace temper::support {

class RandomRawGraph {
 public:
  explicit RandomRawGraph(uint32_t seed, bool backward = true)
      : random_(seed), backward_(backward) {}

  void make() {
    for (int i = 0; i < 4; ++i) {
      at::Tensor tensor = torch::randn({4, 4});
      if (below(4) == 0) {
        tensor = torch::randn({8, 8}).slice(1, 2, 6).slice(0, 0, 8, 2);
      }
      add_input(tensor, i < 2 ? graph::Role::kArgument : graph::Role::kBuffer);
    }
    add_input(torch::rand({4}), graph::Role::kBuffer);
    add_input(torch::rand({4}), graph::Role::kBuffer);
    if (below(5) == 0) {
      builder_.mutate_as_output(below(4));
    }
    const int num_ops = 3 + below(14);
    for (int i = 0; i < num_ops; ++i) {
      step();
    }
    const int num_outputs = 1 + below(3);
    for (int i = 0; i < num_outputs; ++i) {
      const graph::ValueId id = pick();
      outputs_.push_back(id);
      builder_.output(id);
    }
    builder_.end_forward();
    if (backward_ && below(2) == 0) {
      make_backward();
    }
  }

  graph::Graph raw() {
    return builder_.graph();
  }
  std::vector<at::Tensor> inputs; // before any op

 private:
  int below(int n) {
    return static_cast<int>(random_() % static_cast<uint32_t>(n));
  }

  void add_input(const at::Tensor& tensor, graph::Role role) {
    inputs.push_back(copy_inputs({tensor})[0]);
    values_.push_back(
        builder_.input(tensor, "i" + std::to_string(values_.size()), role));
  }

  graph::ValueId pick() {
    return values_[static_cast<size_t>(
        below(static_cast<int>(values_.size())))];
  }
  graph::ValueId pick(at::IntArrayRef sizes) {
    for (int i = 0; i < 50; ++i) {
      const graph::ValueId id = pick();
      if (builder_.tensor(id).sizes() == sizes) {
        return id;
      }
    }
    return values_[0];
  }
  // In the backward, what the forward's caller can see is not written.
  graph::ValueId pick_target() {
    for (int i = 0; i < 50; ++i) {
      const graph::ValueId id = pick();
      bool visible = false;
      if (in_backward_) {
        for (const graph::ValueId other : visible_) {
          visible = visible ||
              builder_.tensor(other).is_alias_of(builder_.tensor(id));
        }
      }
      if (!visible) {
        return id;
      }
    }
    return builder_.call1("aten::clone", {values_[0]});
  }

  void step() {
    try {
      one_op();
    } catch (const c10::Error&) {
      // shapes that do not fit, writes to overlapping memory
    }
  }

  void keep(const std::vector<graph::ValueId>& results) {
    for (const graph::ValueId id : results) {
      if (id != graph::kNoValue && builder_.tensor(id).dim() <= 3 &&
          builder_.tensor(id).is_floating_point()) {
        values_.push_back(id);
      }
    }
  }

  void one_op() {
    const int64_t zero = 0;
    switch (below(26)) {
      case 0:
        keep(builder_.call("aten::mul.Tensor", {pick(), pick()}));
        break;
      case 1:
        keep(builder_.call("aten::add.Tensor", {pick(), pick()}));
        break;
      case 2:
        keep(builder_.call("aten::sigmoid", {pick()}));
        break;
      case 3:
        keep(builder_.call("aten::t", {pick()}));
        break;
      case 4:
        keep(builder_.call(
            "aten::select.int", {pick(), num(zero), num(int64_t{below(4)})}));
        break;
      case 5:
      case 6: {
        const int64_t start = below(3);
        keep(builder_.call(
            "aten::slice.Tensor",
            {pick(), num(int64_t{below(2)}), num(start), num(start + 2)}));
        break;
      }
      case 7:
        keep(builder_.call(
            "aten::split.Tensor", {pick(), num(int64_t{2}), num(zero)}));
        break;
      case 8:
        keep(builder_.call("aten::_unsafe_view", {pick(), ints({-1})}));
        break;
      case 9:
        keep(builder_.call("aten::view", {pick(), ints({2, -1})}));
        break;
      case 10:
      case 11:
        builder_.call("aten::add_.Tensor", {pick_target(), pick()});
        break;
      case 12:
        builder_.call("aten::mul_.Scalar", {pick_target(), num(0.5)});
        break;
      case 13:
        builder_.call("aten::copy_", {pick_target(), pick()});
        break;
      case 14:
        builder_.call("aten::zero_", {pick_target()});
        break;
      case 15:
        builder_.call("aten::bernoulli_.float", {pick_target(), num(0.5)});
        break;
      case 16:
        keep(builder_.call(
            "aten::native_dropout", {pick(), num(0.5), flag(true)}));
        break;
      case 17: {
        const graph::ValueId out = pick_target();
        const auto sizes = builder_.tensor(out).sizes().vec();
        builder_.call("aten::mul.out", {pick(sizes), pick(sizes), out});
        break;
      }
      case 18: {
        const graph::ValueId x = pick({4, 4});
        const graph::ValueId mean = in_backward_ ? fresh_stats() : pick({4});
        const graph::ValueId var = in_backward_ ? fresh_stats() : pick({4});
        if (!builder_.tensor(mean).is_alias_of(builder_.tensor(var)) &&
            builder_.tensor(mean).dim() == 1 &&
            builder_.tensor(var).dim() == 1) {
          keep(builder_.call(
              "aten::native_batch_norm",
              {x,
               none(),
               none(),
               mean,
               var,
               flag(below(2) == 0),
               num(0.1),
               num(1e-5)}));
        }
        break;
      }
      case 19: {
        using List = std::vector<graph::ValueId>;
        keep(builder_.call("aten::cat", {List{pick(), pick()}, num(zero)}));
        break;
      }
      case 20: {
        using List = std::vector<graph::ValueId>;
        const graph::ValueId a = pick_target();
        const graph::ValueId b = pick_target();
        // LibTorch's order among overlapping elements is its own affair.
        if (!builder_.tensor(a).is_alias_of(builder_.tensor(b)) ||
            below(4) == 0) {
          builder_.call("aten::_foreach_add_.Scalar", {List{a, b}, num(0.25)});
        }
        break;
      }
      case 21:
        keep(builder_.call("aten::mm", {pick({4, 4}), pick({4, 4})}));
        break;
      case 22:
        keep(builder_.call("aten::detach", {pick()}));
        break;
      case 23:
        keep(builder_.call("aten::rand_like", {pick()}));
        break;
      case 24:
        keep(builder_.call(
            "aten::as_strided",
            {pick({4, 4}), ints({2, 2}), ints({4, 1}), num(int64_t{1})}));
        break;
      case 25:
        keep(builder_.call("aten::expand", {pick(), ints({4, -1, -1})}));
        break;
    }
  }

  graph::ValueId fresh_stats() {
    return builder_.call1("aten::clone", {values_[4]});
  }

  void make_backward() {
    in_backward_ = true;
    for (size_t i = 0; i < inputs.size(); ++i) {
      visible_.push_back(values_[i]);
    }
    visible_.insert(visible_.end(), outputs_.begin(), outputs_.end());
    std::vector<graph::ValueId> tangents;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const at::Tensor value =
          torch::randn(builder_.tensor(outputs_[i]).sizes());
      inputs.push_back(value.clone());
      tangents.push_back(builder_.tangent(static_cast<int32_t>(i), value));
      if (below(2) == 0) {
        visible_.push_back(tangents.back());
      }
    }
    const int num_segments = 1 + below(3);
    for (int s = 0; s < num_segments; ++s) {
      std::vector<graph::ValueId> entering;
      const bool last = s + 1 == num_segments;
      while (!tangents.empty() && (last || below(2) == 0)) {
        entering.push_back(tangents.back());
        tangents.pop_back();
      }
      builder_.begin_segment(entering);
      values_.insert(values_.end(), entering.begin(), entering.end());
      const int num_ops = 1 + below(8);
      for (int i = 0; i < num_ops; ++i) {
        step();
      }
      const int num_deliveries = below(4);
      for (int i = 0; i < num_deliveries; ++i) {
        // Now and then an undefined gradient.
        const graph::ValueId id = pick();
        builder_.deliver(below(8) == 0 ? graph::kNoValue : id);
      }
      builder_.end_segment();
    }
  }

  std::mt19937 random_;
  RawBuilder builder_;
  std::vector<graph::ValueId> values_;
  std::vector<graph::ValueId> outputs_;
  std::vector<graph::ValueId> visible_;
  const bool backward_;
  bool in_backward_ = false;
};

} // namespace temper::support
