// A Llama block with a key-value cache: trained, and decoding token by token.
#include "model_suite.h"

#include <cmath>

namespace temper::testing {
namespace {

namespace nn = torch::nn;

struct RmsNormImpl : temper::Module<RmsNormImpl> {
  int64_t dim;
  double eps = 1e-5;
  torch::Tensor weight;

  explicit RmsNormImpl(int64_t dim_) : dim(dim_) {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::ones({dim}));
  }
  torch::Tensor forward(torch::Tensor x) {
    return x * torch::rsqrt(x.pow(2).mean(-1, true) + eps) * weight;
  }
};
TEMPER_MODULE(RmsNorm);

/// [batch, heads, seq, head dim], rotated by pairs in the last dimension.
torch::Tensor rotate(
    const torch::Tensor& x,
    const torch::Tensor& cos,
    const torch::Tensor& sin) {
  auto parts = x.chunk(2, -1);
  return torch::cat(
      {parts[0] * cos - parts[1] * sin, parts[0] * sin + parts[1] * cos}, -1);
}

struct LlamaImpl : temper::Module<LlamaImpl> {
  static constexpr int64_t kDim = 8, kHeads = 4, kKvHeads = 2, kHeadDim = 2;
  static constexpr int64_t kVocabulary = 11, kMaxBatch = 4, kMaxSeq = 16;

  nn::Embedding words{nullptr};
  RmsNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, o{nullptr};
  nn::Linear gate{nullptr}, up{nullptr}, down{nullptr}, head{nullptr};
  torch::Tensor cos, sin, k_cache, v_cache;

  LlamaImpl() {
    reset();
  }
  void reset() override {
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(
          name, nn::Linear(nn::LinearOptions(in, out).bias(false)));
    };
    words = register_module("words", nn::Embedding(kVocabulary, kDim));
    norm1 = register_module("norm1", RmsNorm(kDim));
    norm2 = register_module("norm2", RmsNorm(kDim));
    norm3 = register_module("norm3", RmsNorm(kDim));
    q = linear("q", kDim, kHeads * kHeadDim);
    k = linear("k", kDim, kKvHeads * kHeadDim);
    v = linear("v", kDim, kKvHeads * kHeadDim);
    o = linear("o", kHeads * kHeadDim, kDim);
    gate = linear("gate", kDim, 2 * kDim);
    up = linear("up", kDim, 2 * kDim);
    down = linear("down", 2 * kDim, kDim);
    head = linear("head", kDim, kVocabulary);
    auto angle = torch::outer(
        torch::arange(kMaxSeq, torch::kFloat),
        torch::pow(1e4, -torch::arange(0, kHeadDim, 2) / double(kHeadDim)));
    cos = register_buffer("cos", angle.cos());
    sin = register_buffer("sin", angle.sin());
    k_cache = register_buffer(
        "k_cache", torch::zeros({kMaxBatch, kKvHeads, kMaxSeq, kHeadDim}));
    v_cache = register_buffer("v_cache", torch::zeros_like(k_cache));
  }

  /// `start`: where these tokens stand in the cache; none: without the cache.
  torch::Tensor forward(
      torch::Tensor tokens,
      std::optional<int64_t> start = std::nullopt) {
    const auto B = tokens.size(0), T = tokens.size(1);
    const auto first = start.value_or(0);
    auto x = words(tokens);
    auto h = norm1(x);
    const auto split = [&](const torch::Tensor& t, int64_t heads) {
      return t.view({B, T, heads, kHeadDim}).transpose(1, 2);
    };
    auto c = cos.narrow(0, first, T), s = sin.narrow(0, first, T);
    auto queries = rotate(split(q(h), kHeads), c, s);
    auto keys = rotate(split(k(h), kKvHeads), c, s);
    auto values = split(v(h), kKvHeads);
    if (start) {
      k_cache.narrow(0, 0, B).narrow(2, first, T).copy_(keys);
      v_cache.narrow(0, 0, B).narrow(2, first, T).copy_(values);
      keys = k_cache.narrow(0, 0, B).narrow(2, 0, first + T);
      values = v_cache.narrow(0, 0, B).narrow(2, 0, first + T);
    }
    keys = keys.repeat_interleave(kHeads / kKvHeads, 1);
    values = values.repeat_interleave(kHeads / kKvHeads, 1);
    auto scores = torch::matmul(queries, keys.mT()) / std::sqrt(2.0);
    if (T > 1) {
      auto mask =
          torch::full({T, first + T}, -std::numeric_limits<float>::infinity());
      scores = scores + mask.triu(first + 1);
    }
    auto y = torch::matmul(torch::softmax(scores, -1), values);
    x = x + o(y.transpose(1, 2).reshape({B, T, -1}));
    h = norm2(x);
    x = x + down(torch::silu(gate(h)) * up(h));
    return head(norm3(x));
  }
};
TEMPER_MODULE(Llama);

struct LlamaModel : Supervised<LlamaModel, Llama> {
  using Supervised::Supervised;
  // Training, the prompt, and each of five positions of a token; all tokens
  // behind a prompt have one graph.
  static constexpr Work kWork = {.signatures = 7, .graphs = 3};

  static Batch batch(int64_t n) {
    return {torch::randint(Llama::Impl::kVocabulary, {n, 7}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0].narrow(1, 0, 6));
    run.note("logits", logits);
    return torch::cross_entropy_loss(
        logits.flatten(0, 1), batch[0].narrow(1, 1, 6).flatten());
  }
  /// The prompt in one call, then token by token, greedily.
  void evaluate(Trial& run, const Batch& batch) {
    const torch::NoGradGuard no_grad;
    net->eval();
    auto logits = net(batch[0], 0);
    for (int64_t at = batch[0].size(1); at < 12; ++at) {
      auto next = logits.select(1, -1).argmax(-1, true);
      run.note("logits", logits);
      run.note("next", next);
      logits = net(next, at);
    }
    run.note("cache", net->k_cache);
  }
};
TEMPER_TEST_MODEL(Llama, LlamaModel);

// What is in the cache after decoding is what one call on all tokens computes.
TEST(LlamaCache, DecodingAgreesWithOneCall) {
  const auto report = expect_same([](Trial& run) {
    const torch::NoGradGuard no_grad;
    Llama net;
    run.compile(net);
    for (int round = 0; round < 3; ++round) {
      // Others each time: the cache has what was written last.
      auto tokens = torch::randint(11, {2, 6}, torch::kLong);
      auto whole = net(tokens);
      net->v_cache.zero_();
      std::vector<torch::Tensor> parts;
      for (int64_t at = 0; at < 6; ++at) {
        parts.push_back(net(tokens.narrow(1, at, 1), at));
      }
      auto joined = torch::cat(parts, 1);
      EXPECT_TRUE(torch::allclose(whole, joined, 1e-4, 1e-5));
      run.note("joined", joined);
      run.note("cache", net->v_cache);
    }
  });
  // The whole, and each of six positions.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 7 && program_calls == 14);
  // The first position sees a cache of size 1.
  EXPECT_COUNTERS(report.total, graphs == 3 && compiles == 3);
}

} // namespace
} // namespace temper::testing
