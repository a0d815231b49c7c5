// Pointwise operators of random programs, in place too, casts and factories.
#pragma once

#include <vector>

#include "program.h"

namespace temper::fuzz {

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define OP(name, signature, weight, ...)                       \
  {                                                            \
    name, signature, weight,                                   \
        [](const Call& c) -> Tensors { return {__VA_ARGS__}; } \
  }

inline std::vector<OpDef> unary_ops() {
  return {
      OP("neg", "t", 2, c.t(0).neg()),
      OP("abs", "t", 1, c.t(0).abs()),
      OP("exp", "f", 1, c.t(0).exp()),
      OP("log1p", "f", 1, c.t(0).abs().log1p()),
      OP("sqrt", "f", 1, c.t(0).abs().sqrt()),
      OP("rsqrt", "f", 1, (c.t(0).square() + 1).rsqrt()),
      OP("reciprocal", "f", 1, c.t(0).reciprocal()),
      OP("sin", "f", 2, c.t(0).sin()),
      OP("cos", "f", 1, c.t(0).cos()),
      OP("tanh", "f", 2, c.t(0).tanh()),
      OP("sigmoid", "f", 2, c.t(0).sigmoid()),
      OP("relu", "f", 2, c.t(0).relu()),
      OP("gelu", "f", 2, torch::gelu(c.t(0))),
      OP("gelu_tanh", "f", 1, torch::gelu(c.t(0), "tanh")),
      OP("silu", "f", 2, torch::silu(c.t(0))),
      OP("softplus", "fR", 1, torch::softplus(c.t(0), c.x(0))),
      OP("elu", "fR", 1, torch::elu(c.t(0), c.x(0))),
      OP("leaky_relu", "fr", 1, torch::leaky_relu(c.t(0), c.x(0))),
      OP("mish", "f", 1, torch::mish(c.t(0))),
      OP("hardswish", "f", 1, torch::hardswish(c.t(0))),
      OP("erf", "f", 1, c.t(0).erf()),
      OP("square", "t", 1, c.t(0).square()),
      OP("pow", "f1", 1, c.t(0).pow(c.n(0))),
      OP("sign", "t", 1, c.t(0).sign()),
      OP("round", "f", 1, c.t(0).round()),
      OP("clamp", "tr", 2, c.t(0).clamp(c.x(0) - 1, c.x(0) + 1)),
      OP("clamp_min", "tr", 1, c.t(0).clamp_min(c.x(0))),
      OP("nan_to_num", "f", 1, c.t(0).nan_to_num()),
      OP("isnan", "t", 1, c.t(0).isnan()),
      OP("logical_not", "t", 1, c.t(0).logical_not()),
      OP("neg_", "t", 1, c.t(0).neg_()),
      OP("relu_", "f", 2, c.t(0).relu_()),
      OP("tanh_", "f", 1, c.t(0).tanh_()),
      OP("sigmoid_", "f", 1, c.t(0).sigmoid_()),
      OP("exp_", "f", 1, c.t(0).exp_()),
      OP("zero_", "t", 1, c.t(0).zero_()),
      OP("fill_", "tr", 2, c.t(0).fill_(c.x(0))),
      OP("clamp_", "tr", 1, c.t(0).clamp_(c.x(0) - 1, c.x(0) + 1)),
      OP("detach", "t", 2, c.t(0).detach()),
      OP("detach_", "f", 1, c.t(0).detach_()),
      OP("requires_grad_", "f", 1, c.t(0).requires_grad_()),
      OP("clone", "t", 1, c.t(0).clone()),
      OP("contiguous", "t", 2, c.t(0).contiguous()),
      OP("dropout", "fp", 3, torch::dropout(c.t(0), c.x(0), c.training)),
      {"dropout_",
       "fp",
       1,
       [](const Call& c) {
         Tensor self = c.t(0);
         return Tensors{torch::dropout_(self, c.x(0), c.training)};
       }},
  };
}

inline std::vector<OpDef> binary_ops() {
  return {
      OP("add", "tc", 6, c.t(0) + c.t(1)),
      OP("add.alpha", "fcr", 2, c.t(0).add(c.t(1), c.x(0))),
      OP("sub", "fc", 3, c.t(0) - c.t(1)),
      OP("mul", "tc", 6, c.t(0) * c.t(1)),
      OP("div", "fc", 2, c.t(0) / (c.t(1).abs() + 1)),
      OP("add.Scalar", "tr", 3, c.t(0) + c.x(0)),
      OP("sub.size", "tz", 1, c.t(0) - c.n(0)),
      OP("mul.Scalar", "tr", 3, c.t(0) * c.x(0)),
      OP("rsub", "fr", 1, c.x(0) - c.t(0)),
      OP("div.size", "fz", 2, c.t(0) / c.n(0)),
      OP("maximum", "tc", 1, torch::maximum(c.t(0), c.t(1))),
      OP("minimum", "fc", 1, torch::minimum(c.t(0), c.t(1))),
      OP("atan2", "fc", 1, torch::atan2(c.t(0), c.t(1))),
      OP("fmod", "fr", 1, c.t(0).fmod(c.x(0))),
      OP("remainder", "ic", 1, c.t(0).remainder(c.t(1))),
      OP("floor_divide", "tc", 1, c.t(0).floor_divide(c.t(1))),
      OP("lerp", "fsr", 1, torch::lerp(c.t(0), c.t(1), c.x(0))),
      OP("addcmul", "fccr", 1, torch::addcmul(c.t(0), c.t(1), c.t(2), c.x(0))),
      OP("eq", "tc", 1, c.t(0) == c.t(1)),
      OP("lt", "tc", 2, c.t(0) < c.t(1)),
      OP("ge", "tr", 1, c.t(0) >= c.x(0)),
      OP("logical_and", "bc", 1, c.t(0).logical_and(c.t(1))),
      OP("where", "bcc", 3, torch::where(c.t(0), c.t(1), c.t(2))),
      OP("where.zero", "fr", 1, torch::where(c.t(0) > c.x(0), c.t(0), 0.5)),
      OP("masked_fill", "fr", 2, c.t(0).masked_fill(c.t(0) > c.x(0), c.x(0))),
      OP("add_", "tc", 5, c.t(0).add_(c.t(1))),
      OP("add_.alpha", "fcr", 2, c.t(0).add_(c.t(1), c.x(0))),
      OP("sub_", "fc", 2, c.t(0).sub_(c.t(1))),
      OP("mul_", "tc", 4, c.t(0).mul_(c.t(1))),
      OP("add_.Scalar", "tr", 2, c.t(0).add_(c.x(0))),
      OP("mul_.Scalar", "tr", 3, c.t(0).mul_(c.x(0))),
      OP("div_.Scalar", "fR", 1, c.t(0).div_(c.x(0))),
      OP("copy_", "tc", 4, c.t(0).copy_(c.t(1))),
      OP("lerp_", "fsr", 1, c.t(0).lerp_(c.t(1), c.x(0))),
      OP("masked_fill_", "tbr", 1, c.t(0).masked_fill_(c.t(1), c.x(0))),
      OP("addcmul_", "fcc", 1, c.t(0).addcmul_(c.t(1), c.t(2))),
      OP("mse_loss", "fs", 1, torch::mse_loss(c.t(0), c.t(1))),
      OP("smooth_l1_loss", "fs", 1, torch::smooth_l1_loss(c.t(0), c.t(1))),
  };
}

inline std::vector<OpDef> complex_ops() {
  return {
      OP("complex", "fs", 2, torch::complex(c.t(0), c.t(1))),
      OP("view_as_complex",
         "f",
         2,
         torch::view_as_complex(torch::stack({c.t(0), c.t(0).sin()}, -1))),
      OP("real", "q", 2, torch::real(c.t(0))),
      OP("imag", "q", 2, torch::imag(c.t(0))),
      OP("conj", "q", 5, c.t(0).conj()),
      OP("conj_physical", "q", 1, c.t(0).conj_physical()),
      OP("resolve_conj", "q", 1, c.t(0).resolve_conj()),
      OP("resolve_neg", "t", 1, c.t(0).resolve_neg()),
      OP("view_as_real", "q", 2, torch::view_as_real(c.t(0))),
      OP("angle", "q", 1, c.t(0).angle()),
      OP("exp.complex", "q", 1, c.t(0).exp()),
      OP("mul.complex", "qc", 5, c.t(0) * c.t(1)),
      OP("mul_.conj", "qs", 2, c.t(0).mul_(c.t(1).conj())),
      OP("copy_.conj", "qs", 1, c.t(0).copy_(c.t(1).conj())),
      OP("conj_physical_", "q", 1, c.t(0).conj_physical_()),
      OP("imag.mul_", "qr", 2, torch::imag(c.t(0)).mul_(c.x(0))),
      OP("real.copy_", "q", 1, torch::real(c.t(0)).copy_(torch::imag(c.t(0)))),
      OP("fft_rfft", "f", 1, torch::fft_rfft(c.t(0))),
      OP("fft_ifft", "q", 1, torch::fft_ifft(c.t(0))),
  };
}

inline std::vector<OpDef> factory_ops() {
  return {
      // From floating point through a range that every dtype holds.
      OP("to",
         "ty",
         6,
         c.t(0).is_floating_point()
             ? c.t(0).nan_to_num(0, 1, -1).clamp(-100, 100).to(c.dtype(0))
             : c.t(0).to(c.dtype(0))),
      OP("to.float", "t", 3, c.t(0).to(torch::kFloat)),
      OP("zeros_like", "t", 2, torch::zeros_like(c.t(0))),
      OP("ones_like", "t", 1, torch::ones_like(c.t(0))),
      OP("full_like", "fr", 1, torch::full_like(c.t(0), c.x(0))),
      OP("randn_like", "f", 3, torch::randn_like(c.t(0))),
      OP("rand_like", "f", 1, torch::rand_like(c.t(0))),
      OP("normal_", "f", 1, c.t(0).normal_()),
      OP("uniform_", "f", 1, c.t(0).uniform_()),
      OP("bernoulli", "f", 1, c.t(0).sigmoid().bernoulli()),
      OP("full", "tzr", 2, torch::full({c.n(0), 1}, c.x(1))),
      OP("zeros", "tz", 1, torch::zeros({c.n(0)})),
      OP("arange", "tz", 3, torch::arange(c.n(0))),
      OP("arange.float",
         "tz",
         1,
         torch::arange(0, c.n(0), torch::TensorOptions(torch::kFloat))),
      OP("eye", "tz", 1, torch::eye(c.n(0))),
      {"constant",
       "tr",
       1,
       [](const Call& c) -> Tensors {
         return {torch::tensor({1.0, c.x(0)}, torch::kFloat)};
       }},
      OP("scalar", "tr", 1, torch::scalar_tensor(c.x(0))),
      OP("tril", "Mn", 1, c.t(0).tril(c.n(0))),
      OP("triu", "Mn", 1, c.t(0).triu(c.n(0))),
  };
}

} // namespace temper::fuzz
