// Dense, convolutional, recurrent nets, and blocks of transformers.
#include "models.h"

#include <cmath>

#include "char_gpt/model.h"

namespace bench {

namespace {

namespace nn = torch::nn;
using torch::Tensor;

struct MlpImpl : temper::Module<MlpImpl> {
  MlpImpl(int64_t in_, int64_t hidden_, int64_t out_)
      : in(in_), hidden(hidden_), out(out_) {
    reset();
  }
  void reset() override {
    first = register_module("first", nn::Linear(in, hidden));
    second = register_module("second", nn::Linear(hidden, hidden));
    last = register_module("last", nn::Linear(hidden, out));
  }
  Tensor forward(const Tensor& x) {
    return last(torch::gelu(second(torch::relu(first(x)))));
  }

  int64_t in, hidden, out;
  nn::Linear first{nullptr}, second{nullptr}, last{nullptr};
};
TEMPER_MODULE(Mlp);

struct CnnImpl : temper::Module<CnnImpl> {
  CnnImpl() {
    reset();
  }
  void reset() override {
    const auto conv = [](int64_t in, int64_t out) {
      return nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
    };
    conv1 = register_module("conv1", conv(3, 16));
    norm1 = register_module("norm1", nn::BatchNorm2d(16));
    conv2 = register_module("conv2", conv(16, 32));
    norm2 = register_module("norm2", nn::BatchNorm2d(32));
    head = register_module("head", nn::Linear(32, 10));
  }
  /// [batch, 3, height, width] to [batch, 10].
  Tensor forward(Tensor x) {
    x = torch::max_pool2d(torch::relu(norm1(conv1(x))), 2);
    x = torch::relu(norm2(conv2(x)));
    return head(torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }

  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d norm1{nullptr}, norm2{nullptr};
  nn::Linear head{nullptr};
};
TEMPER_MODULE(Cnn);

struct TaggerImpl : temper::Module<TaggerImpl> {
  TaggerImpl() {
    reset();
  }
  void reset() override {
    lstm = register_module(
        "lstm", nn::LSTM(nn::LSTMOptions(32, 64).batch_first(true)));
    head = register_module("head", nn::Linear(64, 16));
  }
  /// [batch, seq, 32] to [batch, seq, 16].
  Tensor forward(const Tensor& x) {
    return head(std::get<0>(lstm(x)));
  }

  nn::LSTM lstm{nullptr};
  nn::Linear head{nullptr};
};
TEMPER_MODULE(Tagger);

struct RmsNormImpl : temper::Module<RmsNormImpl> {
  explicit RmsNormImpl(int64_t width_) : width(width_) {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::ones({width}));
  }
  Tensor forward(const Tensor& x) {
    return x * torch::rsqrt(x.square().mean(-1, true) + 1e-5) * weight;
  }

  int64_t width;
  Tensor weight;
};
TEMPER_MODULE(RmsNorm);

/// Grouped-query attention with rotary positions, and a gated feed-forward net.
struct LlamaBlockImpl : temper::Module<LlamaBlockImpl> {
  LlamaBlockImpl() {
    reset();
  }
  void reset() override {
    const auto linear = [&](const char* name, int64_t from, int64_t to) {
      return register_module(
          name, nn::Linear(nn::LinearOptions(from, to).bias(false)));
    };
    norm1 = register_module("norm1", RmsNorm(kWidth));
    norm2 = register_module("norm2", RmsNorm(kWidth));
    q = linear("q", kWidth, kHeads * kHeadWidth);
    k = linear("k", kWidth, kKeyHeads * kHeadWidth);
    v = linear("v", kWidth, kKeyHeads * kHeadWidth);
    out = linear("out", kHeads * kHeadWidth, kWidth);
    gate = linear("gate", kWidth, kHidden);
    up = linear("up", kWidth, kHidden);
    down = linear("down", kHidden, kWidth);
    const Tensor frequency = torch::pow(
        1e4,
        -torch::arange(0, kHeadWidth, 2, torch::kFloat) /
            static_cast<double>(kHeadWidth));
    const Tensor angle =
        torch::outer(torch::arange(kTime, torch::kFloat), frequency);
    cos = register_buffer("cos", angle.cos());
    sin = register_buffer("sin", angle.sin());
  }
  /// [batch, time, width] to the same.
  Tensor forward(Tensor x) {
    x = x + attention(norm1(x));
    const Tensor y = norm2(x);
    return x + down(torch::silu(gate(y)) * up(y));
  }

  static constexpr int64_t kWidth = 128, kHeads = 4, kKeyHeads = 2;
  static constexpr int64_t kHeadWidth = 32, kHidden = 352, kTime = 64;

  RmsNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr};
  nn::Linear gate{nullptr}, up{nullptr}, down{nullptr};
  Tensor cos, sin;

 private:
  Tensor rotate(const Tensor& x) {
    const auto half = x.chunk(2, -1);
    return torch::cat(
        {half[0] * cos - half[1] * sin, half[0] * sin + half[1] * cos}, -1);
  }

  Tensor attention(const Tensor& x) {
    const auto heads = [&](const Tensor& t, int64_t count) {
      return t.view({x.size(0), x.size(1), count, kHeadWidth}).transpose(1, 2);
    };
    const auto shared = [&](const Tensor& t) {
      return t.repeat_interleave(kHeads / kKeyHeads, 1);
    };
    const Tensor mixed = at::scaled_dot_product_attention(
        rotate(heads(q(x), kHeads)),
        shared(rotate(heads(k(x), kKeyHeads))),
        shared(heads(v(x), kKeyHeads)),
        /*attn_mask=*/{},
        /*dropout_p=*/0.0,
        /*is_causal=*/true);
    return out(mixed.transpose(1, 2).reshape(x.sizes()));
  }
};
TEMPER_MODULE(LlamaBlock);

Subject mlp() {
  return make_subject("mlp", Mlp(256, 512, 10), torch::randn({64, 256}));
}

Subject cnn() {
  return make_subject("cnn_bn", Cnn(), torch::randn({8, 3, 32, 32}));
}

Subject lstm() {
  return make_subject("lstm", Tagger(), torch::randn({4, 16, 32}));
}

char_gpt::GptConfig gpt_config() {
  return {
      .vocabulary = 96,
      .block = 64,
      .layers = 4,
      .heads = 4,
      .width = 128,
      .dropout = 0.1};
}

Subject gpt_block() {
  return make_subject(
      "gpt_block", char_gpt::Block(gpt_config()), torch::randn({4, 64, 128}));
}

Subject llama_block() {
  return make_subject(
      "llama_block",
      LlamaBlock(),
      torch::randn({4, LlamaBlockImpl::kTime, 128}));
}

Subject gpt() {
  const auto config = gpt_config();
  return make_subject(
      "gpt",
      char_gpt::Gpt(config),
      torch::randint(config.vocabulary, {16, config.block}, torch::kLong));
}

Subject tiny_mlp() {
  return make_subject("mlp", Mlp(8, 8, 4), torch::randn({1, 8}));
}

Subject tiny_gpt_block() {
  auto config = gpt_config();
  config.block = 4;
  config.heads = 2;
  config.width = 8;
  return make_subject(
      "gpt_block", char_gpt::Block(config), torch::randn({1, 4, 8}));
}

} // namespace

std::vector<Model> small_models() {
  return {
      {"mlp", mlp},
      {"cnn_bn", cnn},
      {"lstm", lstm},
      {"gpt_block", gpt_block},
      {"llama_block", llama_block}};
}

std::vector<Model> ordinary_models() {
  return {{"mlp", mlp}, {"gpt", gpt}};
}

std::vector<Model> tiny_models() {
  return {{"mlp", tiny_mlp}, {"gpt_block", tiny_gpt_block}};
}

} // namespace bench
