// Reductions, matrix products and layers of random programs; the whole list.
#pragma once

#include <vector>

#include "ops_shape.h"

namespace temper::fuzz {

// The results of an op that returns a tuple of two tensors.
inline Tensors both(const std::tuple<Tensor, Tensor>& pair) {
  return {std::get<0>(pair), std::get<1>(pair)};
}

inline std::vector<OpDef> reduction_ops() {
  return {
      OP("sum", "t", 3, c.t(0).sum()),
      OP("sum.dim", "tkL", 4, c.t(0).sum(c.list(1), c.flag(0))),
      OP("mean", "f", 2, c.t(0).mean()),
      OP("mean.dim", "fkL", 3, c.t(0).mean(c.list(1), c.flag(0))),
      OP("amax", "tkL", 2, c.t(0).amax(c.list(1), c.flag(0))),
      OP("amin", "tkL", 1, c.t(0).amin(c.list(1), c.flag(0))),
      OP("max", "t", 1, c.t(0).max()),
      OP("argmax", "tdk", 1, c.t(0).argmax(c.n(0), c.flag(1))),
      OP("var", "fkkL", 1, c.t(0).var(c.list(2), c.flag(0), c.flag(1))),
      OP("std", "fkkL", 1, c.t(0).std(c.list(2), c.flag(0), c.flag(1))),
      OP("prod", "td", 1, c.t(0).prod(c.n(0))),
      OP("norm", "fL", 1, torch::linalg_vector_norm(c.t(0), 2, c.list(0))),
      OP("logsumexp", "fkL", 1, c.t(0).logsumexp(c.list(1), c.flag(0))),
      OP("cumsum", "td", 2, c.t(0).cumsum(c.n(0))),
      OP("cumsum_", "td", 1, c.t(0).cumsum_(c.n(0))),
      OP("any", "tdk", 1, c.t(0).any(c.n(0), c.flag(1))),
      OP("all", "t", 1, c.t(0).all()),
      {"max.dim",
       "tdk",
       2,
       [](const Call& c) { return both(c.t(0).max(c.n(0), c.flag(1))); }},
      {"sort",
       "td",
       1,
       [](const Call& c) { return both(c.t(0).sort(true, c.n(0), false)); }},
      {"topk",
       "td",
       1,
       [](const Call& c) { return both(c.t(0).topk(2, c.n(0))); }},
      {"var_mean",
       "fkkL",
       1,
       [](const Call& c) {
         return both(torch::var_mean(c.t(0), c.list(2), c.flag(0), c.flag(1)));
       }},
      OP("item", "t", 1, c.t(0) * c.t(0).sum().item()),
      // A branch on values: each call goes its own way.
      OP("branch",
         "f",
         1,
         c.t(0).sum().item().toDouble() > 0 ? c.t(0).exp() : c.t(0).neg()),
  };
}

inline std::vector<OpDef> layer_ops() {
  return {
      OP("matmul", "fx", 6, torch::matmul(c.t(0), c.t(1))),
      OP("matmul.t", "f", 2, torch::matmul(c.t(0), c.t(0).transpose(-1, -2))),
      OP("mm", "Mx", 1, torch::mm(c.t(0), c.t(1))),
      OP("bmm", "3x", 1, torch::bmm(c.t(0), c.t(1))),
      OP("linear", "fw", 5, torch::linear(c.t(0), c.t(1))),
      OP("linear.bias", "fwu", 5, torch::linear(c.t(0), c.t(1), c.t(2))),
      OP("addmm", "Mwc", 1, torch::addmm(c.t(2), c.t(0), c.t(1).t(), 0.5, 2)),
      OP("outer", "vv", 1, torch::outer(c.t(0), c.t(1))),
      OP("softmax", "fd", 4, c.t(0).softmax(c.n(0))),
      OP("log_softmax", "fd", 3, c.t(0).log_softmax(c.n(0))),
      OP("softmax.double", "fd", 1, c.t(0).softmax(c.n(0), torch::kDouble)),
      OP("layer_norm", "f", 2, torch::layer_norm(c.t(0), {c.t(0).size(-1)})),
      OP("layer_norm.affine",
         "fvv",
         3,
         torch::layer_norm(c.t(0), {c.t(0).size(-1)}, c.t(1), c.t(2))),
      OP("batch_norm",
         "fBB",
         4,
         torch::batch_norm(
             c.t(0), {}, {}, c.t(1), c.t(2), c.training, 0.1, 1e-5, false)),
      OP("batch_norm.affine",
         "fVVBB",
         3,
         torch::batch_norm(
             c.t(0),
             c.t(1),
             c.t(2),
             c.t(3),
             c.t(4),
             c.training,
             0.25,
             1e-5,
             false)),
      OP("group_norm", "f", 1, torch::group_norm(c.t(0), 1)),
      OP("cross_entropy",
         "Mj",
         2,
         torch::cross_entropy_loss(c.t(0), c.index(1, 1))),
      OP("conv1d", "33", 1, torch::conv1d(c.t(0), c.t(1), {}, 1, 1)),
      OP("avg_pool1d", "3", 1, torch::avg_pool1d(c.t(0), 2)),
  };
}

inline const std::vector<OpDef>& all_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> all;
    for (const auto& list :
         {unary_ops(),
          binary_ops(),
          complex_ops(),
          factory_ops(),
          view_ops(),
          index_ops(),
          reduction_ops(),
          layer_ops()}) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }();
  return ops;
}

#undef OP

} // namespace temper::fuzz
