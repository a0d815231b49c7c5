// Dense models: MLP, autoencoder, VAE, embedding bag, MLP under bf16 autocast.
#include "model_suite.h"

#include <ATen/autocast_mode.h>

namespace temper::testing {
namespace {

struct MlpImpl : temper::Module<MlpImpl> {
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
  torch::nn::Dropout dropout{nullptr};

  MlpImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 16));
    third = register_module("third", torch::nn::Linear(16, 3));
    dropout = register_module("dropout", torch::nn::Dropout(0.25));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first(x));
    x = dropout(torch::gelu(second(x)));
    return third(x);
  }
};
TEMPER_MODULE(Mlp);

struct MlpModel : Supervised<MlpModel, Mlp> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {
        torch::randn({n, 8}).requires_grad_(),
        torch::randint(3, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[1]);
  }
};
TEMPER_TEST_MODEL(Mlp, MlpModel);

// The forward of a model that is trained in mixed precision holds its own
// autocast region, as libtorch code does for want of a decorator.
class AutocastGuard {
 public:
  AutocastGuard()
      : enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
        dtype_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, enabled_);
    at::autocast::set_autocast_dtype(at::kCPU, dtype_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool enabled_;
  at::ScalarType dtype_;
};

struct AutocastMlpModel : Supervised<AutocastMlpModel, Mlp> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randn({n, 8}), torch::randint(3, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    const AutocastGuard autocast;
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[1]);
  }
};
TEMPER_TEST_MODEL(AutocastMlp, AutocastMlpModel);

struct AutoencoderImpl : temper::Module<AutoencoderImpl> {
  torch::nn::Sequential encoder{nullptr}, decoder{nullptr};

  AutoencoderImpl() {
    reset();
  }
  void reset() override {
    encoder = register_module(
        "encoder",
        torch::nn::Sequential(
            torch::nn::Linear(12, 8),
            torch::nn::Tanh(),
            torch::nn::Linear(8, 3)));
    decoder = register_module(
        "decoder",
        torch::nn::Sequential(
            torch::nn::Linear(3, 8),
            torch::nn::LeakyReLU(),
            torch::nn::Linear(8, 12),
            torch::nn::Sigmoid()));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    auto code = encoder->forward(x.flatten(1));
    return {decoder->forward(code).view_as(x), code};
  }
};
TEMPER_MODULE(Autoencoder);

struct AutoencoderModel : Supervised<AutoencoderModel, Autoencoder> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::rand({n, 3, 4}).requires_grad_()};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto [image, code] = net(batch[0]);
    run.note("image", image);
    run.note("code", code);
    return torch::mse_loss(image, batch[0]) + 1e-3 * code.abs().sum();
  }
};
TEMPER_TEST_MODEL(Autoencoder, AutoencoderModel);

struct VaeImpl : temper::Module<VaeImpl> {
  torch::nn::Linear encode{nullptr}, to_mu{nullptr}, to_logvar{nullptr};
  torch::nn::Linear decode{nullptr}, to_image{nullptr};

  VaeImpl() {
    reset();
  }
  void reset() override {
    encode = register_module("encode", torch::nn::Linear(12, 10));
    to_mu = register_module("to_mu", torch::nn::Linear(10, 2));
    to_logvar = register_module("to_logvar", torch::nn::Linear(10, 2));
    decode = register_module("decode", torch::nn::Linear(2, 10));
    to_image = register_module("to_image", torch::nn::Linear(10, 12));
  }
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
      torch::Tensor x) {
    auto h = torch::relu(encode(x));
    auto mu = to_mu(h);
    auto logvar = to_logvar(h);
    auto z = mu;
    if (is_training()) {
      auto std = torch::exp(0.5 * logvar);
      z = mu + std * torch::randn_like(std);
    }
    auto recon = torch::sigmoid(to_image(torch::relu(decode(z))));
    return {recon, mu, logvar};
  }
};
TEMPER_MODULE(Vae);

struct VaeModel : Supervised<VaeModel, Vae> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::rand({n, 12})};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    // Noise is added to a batch between rounds; a target must stay in [0, 1].
    auto x = batch[0].clamp(0, 1);
    auto [recon, mu, logvar] = net(x);
    run.note("recon", recon);
    run.note("mu", mu);
    run.note("logvar", logvar);
    auto fit = torch::binary_cross_entropy(
        recon, x, /*weight=*/{}, at::Reduction::Sum);
    auto kl = -0.5 * torch::sum(1 + logvar - mu.pow(2) - logvar.exp());
    return fit + kl;
  }
};
TEMPER_TEST_MODEL(Vae, VaeModel);

struct BagClassifierImpl : temper::Module<BagClassifierImpl> {
  torch::nn::EmbeddingBag words{nullptr};
  torch::nn::Linear out{nullptr};

  BagClassifierImpl() {
    reset();
  }
  void reset() override {
    words = register_module(
        "words",
        torch::nn::EmbeddingBag(
            torch::nn::EmbeddingBagOptions(20, 6).mode(torch::kMean)));
    out = register_module("out", torch::nn::Linear(6, 4));
  }
  torch::Tensor forward(torch::Tensor tokens, torch::Tensor offsets) {
    return out(words(tokens, offsets));
  }
};
TEMPER_MODULE(BagClassifier);

struct BagModel : Supervised<BagModel, BagClassifier> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    // Bags of five words each, of which the second is empty.
    auto offsets = torch::arange(n) * 5;
    offsets[1].copy_(offsets[0]);
    return {
        torch::randint(20, {5 * n}, torch::kLong),
        offsets,
        torch::randint(4, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0], batch[1]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[2]);
  }
};
TEMPER_TEST_MODEL(EmbeddingBag, BagModel);

} // namespace
} // namespace temper::testing
