// A decoder-only transformer (GPT-2's architecture) over characters.
#pragma once

#include <cstdint>

#include <temper/temper.h>
#include <torch/torch.h>

namespace char_gpt {

struct GptConfig {
  int64_t vocabulary;
  int64_t block;
  int64_t layers;
  int64_t heads;
  int64_t width;
  double dropout;
};

struct CausalSelfAttentionImpl : temper::Module<CausalSelfAttentionImpl> {
  explicit CausalSelfAttentionImpl(const GptConfig& config);
  void reset() override;
  /// [batch, time, width] to the same, time up to the block size.
  torch::Tensor forward(const torch::Tensor& x);

  GptConfig config;
  torch::nn::Linear qkv{nullptr};
  torch::nn::Linear out{nullptr};
  torch::nn::Dropout weights_dropout{nullptr};
  torch::nn::Dropout out_dropout{nullptr};
  torch::Tensor future; ///< [block, block], true where a key comes too late.
};
TEMPER_MODULE(CausalSelfAttention);

struct FeedForwardImpl : temper::Module<FeedForwardImpl> {
  explicit FeedForwardImpl(const GptConfig& config);
  void reset() override;
  /// [batch, time, width] to the same.
  torch::Tensor forward(const torch::Tensor& x);

  GptConfig config;
  torch::nn::Linear up{nullptr};
  torch::nn::Linear out{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TEMPER_MODULE(FeedForward);

struct BlockImpl : temper::Module<BlockImpl> {
  explicit BlockImpl(const GptConfig& config);
  void reset() override;
  /// [batch, time, width] to the same.
  torch::Tensor forward(torch::Tensor x);

  GptConfig config;
  torch::nn::LayerNorm norm1{nullptr};
  CausalSelfAttention attention{nullptr};
  torch::nn::LayerNorm norm2{nullptr};
  FeedForward feed_forward{nullptr};
};
TEMPER_MODULE(Block);

struct GptImpl : temper::Module<GptImpl> {
  explicit GptImpl(const GptConfig& config);
  /// Draws new weights from the default generator.
  void reset() override;
  /// Tokens [batch, time] to logits [batch, time, vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens);

  GptConfig config;
  torch::nn::Embedding token{nullptr};
  torch::nn::Embedding position{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Sequential blocks{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};

 private:
  void initialise();
};
TEMPER_MODULE(Gpt);

} // namespace char_gpt
