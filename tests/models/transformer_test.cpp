// Transformers: torch's own encoder, a GPT with tied embeddings, experts.
#include "model_suite.h"

#include <cmath>

namespace temper::testing {
namespace {

namespace nn = torch::nn;

struct EncoderClassifierImpl : temper::Module<EncoderClassifierImpl> {
  nn::Embedding words{nullptr};
  nn::TransformerEncoder encoder{nullptr};
  nn::Linear out{nullptr};

  EncoderClassifierImpl() {
    reset();
  }
  void reset() override {
    words = register_module("words", nn::Embedding(20, 8));
    encoder = register_module(
        "encoder",
        nn::TransformerEncoder(nn::TransformerEncoderOptions(
            nn::TransformerEncoderLayerOptions(8, 2)
                .dim_feedforward(16)
                .dropout(0.1)
                .activation(torch::kGELU),
            2)));
    out = register_module("out", nn::Linear(8, 3));
  }
  torch::Tensor forward(torch::Tensor tokens) {
    // torch's encoder wants [seq, batch, dim].
    auto x = encoder(words(tokens).transpose(0, 1));
    return out(x.mean(0));
  }
};
TEMPER_MODULE(EncoderClassifier);

struct EncoderModel : Supervised<EncoderModel, EncoderClassifier> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {
        torch::randint(20, {n, 5}, torch::kLong),
        torch::randint(3, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[1]);
  }
};
TEMPER_TEST_MODEL(TransformerEncoder, EncoderModel);

/// A block as in GPT-2.
struct BlockImpl : temper::Module<BlockImpl> {
  int64_t dim, heads;
  nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  nn::Linear qkv{nullptr}, project{nullptr}, grow{nullptr}, shrink{nullptr};
  nn::Dropout dropout{nullptr};

  BlockImpl(int64_t dim_, int64_t heads_) : dim(dim_), heads(heads_) {
    reset();
  }
  void reset() override {
    norm1 =
        register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({dim})));
    norm2 =
        register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({dim})));
    qkv = register_module("qkv", nn::Linear(dim, 3 * dim));
    project = register_module("project", nn::Linear(dim, dim));
    grow = register_module("grow", nn::Linear(dim, 4 * dim));
    shrink = register_module("shrink", nn::Linear(4 * dim, dim));
    dropout = register_module("dropout", nn::Dropout(0.1));
  }
  torch::Tensor attend(torch::Tensor x) {
    const auto B = x.size(0), T = x.size(1);
    auto parts = qkv(x).chunk(3, -1);
    const auto split = [&](const torch::Tensor& t) {
      return t.view({B, T, heads, dim / heads}).transpose(1, 2);
    };
    auto scores = torch::matmul(split(parts[0]), split(parts[1]).mT()) /
        std::sqrt(static_cast<double>(dim / heads));
    auto future = torch::ones({T, T}, torch::kBool).triu(1);
    auto weights = dropout(torch::softmax(
        scores.masked_fill(future, -std::numeric_limits<float>::infinity()),
        -1));
    auto y = torch::matmul(weights, split(parts[2]));
    return project(y.transpose(1, 2).reshape({B, T, dim}));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = x + dropout(attend(norm1(x)));
    return x + dropout(shrink(torch::gelu(grow(norm2(x)))));
  }
};
TEMPER_MODULE(Block);

struct GptImpl : temper::Module<GptImpl> {
  nn::Embedding words{nullptr}, places{nullptr};
  nn::ModuleList blocks{nullptr};
  nn::LayerNorm norm{nullptr};

  GptImpl() {
    reset();
  }
  void reset() override {
    words = register_module("words", nn::Embedding(17, 8));
    places = register_module("places", nn::Embedding(16, 8));
    nn::ModuleList list;
    for (int i = 0; i < 2; ++i) {
      list->push_back(Block(8, 2));
    }
    blocks = register_module("blocks", list);
    norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  }
  torch::Tensor forward(torch::Tensor tokens) {
    auto at = torch::arange(tokens.size(1), tokens.options());
    auto x = words(tokens) + places(at);
    for (const auto& block : *blocks) {
      x = block->as<Block>()->forward(x);
    }
    // The head is the embedding.
    return nn::functional::linear(norm(x), words->weight);
  }
};
TEMPER_MODULE(Gpt);

struct GptModel : Supervised<GptModel, Gpt> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randint(17, {n, 9}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0].narrow(1, 0, 8));
    run.note("logits", logits);
    return torch::cross_entropy_loss(
        logits.flatten(0, 1), batch[0].narrow(1, 1, 8).flatten());
  }
};
TEMPER_TEST_MODEL(Gpt, GptModel);

/// A language model whose head uses the embedding's weight. LibTorch cannot
/// register it twice, so the field is assigned; the weight that the head was
/// made with stays registered and never gets a gradient.
struct TiedImpl : temper::Module<TiedImpl> {
  nn::Embedding words{nullptr};
  nn::GRU body{nullptr};
  nn::Linear head{nullptr};

  TiedImpl() {
    reset();
  }
  void reset() override {
    words = register_module("words", nn::Embedding(13, 6));
    body = register_module("body", nn::GRU(nn::GRUOptions(6, 6)));
    head = register_module("head", nn::Linear(6, 13));
    head->weight = words->weight;
  }
  torch::Tensor forward(torch::Tensor tokens) {
    return head(std::get<0>(body->forward(words(tokens))));
  }
};
TEMPER_MODULE(Tied);

struct TiedModel : Supervised<TiedModel, Tied> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randint(13, {6, n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0].narrow(0, 0, 5));
    run.note("logits", logits);
    return torch::cross_entropy_loss(
        logits.flatten(0, 1), batch[0].narrow(0, 1, 5).flatten());
  }
};
TEMPER_TEST_MODEL(TiedEmbedding, TiedModel);

/// Four experts, all of which see everything; a gate weighs what they say.
struct ExpertsImpl : temper::Module<ExpertsImpl> {
  nn::Linear gate{nullptr};
  nn::ModuleList experts{nullptr};

  ExpertsImpl() {
    reset();
  }
  void reset() override {
    gate = register_module("gate", nn::Linear(6, 4));
    nn::ModuleList list;
    for (int i = 0; i < 4; ++i) {
      list->push_back(
          nn::Sequential(nn::Linear(6, 12), nn::SiLU(), nn::Linear(12, 6)));
    }
    experts = register_module("experts", list);
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    auto [best, which] = gate(x).topk(2, -1);
    auto weights = torch::zeros({x.size(0), 4}, x.options())
                       .scatter(1, which, torch::softmax(best, -1));
    auto y = torch::zeros_like(x);
    for (size_t i = 0; i < experts->size(); ++i) {
      auto part = experts[i]->as<nn::Sequential>()->forward(x);
      y = y + weights.select(1, static_cast<int64_t>(i)).unsqueeze(1) * part;
    }
    // How evenly the experts are used; a loss keeps it so.
    auto balance = weights.mean(0).pow(2).sum() * 4;
    return {x + y, balance};
  }
};
TEMPER_MODULE(Experts);

struct ExpertsModel : Supervised<ExpertsModel, Experts> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randn({4 * n, 6}), torch::randn({4 * n, 6})};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto [y, balance] = net(batch[0]);
    run.note("y", y);
    run.note("balance", balance);
    return torch::mse_loss(y, batch[1]) + 0.01 * balance;
  }
};
TEMPER_TEST_MODEL(MixtureOfExperts, ExpertsModel);

} // namespace
} // namespace temper::testing
