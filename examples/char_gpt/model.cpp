// The transformer's layers.
#include "char_gpt/model.h"

#include <cmath>
#include <limits>

namespace char_gpt {

namespace nn = torch::nn;
using torch::Tensor;

CausalSelfAttentionImpl::CausalSelfAttentionImpl(const GptConfig& c)
    : config(c) {
  reset();
}

void CausalSelfAttentionImpl::reset() {
  qkv = register_module("qkv", nn::Linear(config.width, 3 * config.width));
  out = register_module("out", nn::Linear(config.width, config.width));
  weights_dropout =
      register_module("weights_dropout", nn::Dropout(config.dropout));
  out_dropout = register_module("out_dropout", nn::Dropout(config.dropout));
  future = register_buffer(
      "future",
      torch::ones({config.block, config.block}, torch::kBool).triu(1));
}

Tensor CausalSelfAttentionImpl::forward(const Tensor& x) {
  const int64_t batch = x.size(0);
  const int64_t time = x.size(1);
  const int64_t head_width = config.width / config.heads;
  const auto heads = [&](const Tensor& t) {
    return t.view({batch, time, config.heads, head_width}).transpose(1, 2);
  };
  const auto parts = qkv(x).split(config.width, /*dim=*/2);
  const Tensor q = heads(parts[0]);
  const Tensor k = heads(parts[1]);
  const Tensor v = heads(parts[2]);

  Tensor weights = torch::matmul(q, k.transpose(2, 3)) /
      std::sqrt(static_cast<double>(head_width));
  const Tensor mask = future.narrow(0, 0, time).narrow(1, 0, time);
  weights = weights.masked_fill(mask, -std::numeric_limits<double>::infinity());
  weights = weights_dropout(torch::softmax(weights, /*dim=*/-1));
  const Tensor mixed = torch::matmul(weights, v)
                           .transpose(1, 2)
                           .contiguous()
                           .view({batch, time, config.width});
  return out_dropout(out(mixed));
}

FeedForwardImpl::FeedForwardImpl(const GptConfig& c) : config(c) {
  reset();
}

void FeedForwardImpl::reset() {
  up = register_module("up", nn::Linear(config.width, 4 * config.width));
  out = register_module("out", nn::Linear(4 * config.width, config.width));
  dropout = register_module("dropout", nn::Dropout(config.dropout));
}

Tensor FeedForwardImpl::forward(const Tensor& x) {
  return dropout(out(torch::gelu(up(x))));
}

BlockImpl::BlockImpl(const GptConfig& c) : config(c) {
  reset();
}

void BlockImpl::reset() {
  const nn::LayerNormOptions norm({config.width});
  norm1 = register_module("norm1", nn::LayerNorm(norm));
  attention = register_module("attention", CausalSelfAttention(config));
  norm2 = register_module("norm2", nn::LayerNorm(norm));
  feed_forward = register_module("feed_forward", FeedForward(config));
}

Tensor BlockImpl::forward(Tensor x) {
  x = x + attention(norm1(x));
  return x + feed_forward(norm2(x));
}

GptImpl::GptImpl(const GptConfig& c) : config(c) {
  reset();
}

void GptImpl::reset() {
  token =
      register_module("token", nn::Embedding(config.vocabulary, config.width));
  position =
      register_module("position", nn::Embedding(config.block, config.width));
  dropout = register_module("dropout", nn::Dropout(config.dropout));
  blocks = nn::Sequential();
  for (int64_t i = 0; i < config.layers; ++i) {
    blocks->push_back(Block(config));
  }
  register_module("blocks", blocks);
  norm = register_module(
      "norm", nn::LayerNorm(nn::LayerNormOptions({config.width})));
  head = register_module(
      "head",
      nn::Linear(
          nn::LinearOptions(config.width, config.vocabulary).bias(false)));
  initialise();
}

void GptImpl::initialise() {
  // As GPT-2: what is added to the residual stream starts smaller, the more
  // layers add to it.
  constexpr double kDeviation = 0.02;
  const double residual =
      kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
  const torch::NoGradGuard no_grad;
  for (auto& entry : named_parameters()) {
    const std::string& name = entry.key();
    if (entry.value().dim() == 2) {
      const bool adds = name.ends_with("out.weight");
      nn::init::normal_(entry.value(), 0.0, adds ? residual : kDeviation);
    } else if (name.ends_with("bias")) {
      nn::init::zeros_(entry.value());
    }
  }
}

Tensor GptImpl::forward(const Tensor& tokens) {
  const Tensor positions = torch::arange(tokens.size(1), tokens.options());
  Tensor x = dropout(token(tokens) + position(positions));
  x = blocks->forward(x);
  return head(norm(x));
}

} // namespace char_gpt
