// Models of signals: WaveNet, transposed convolutions, group and instance norm;
// complex numbers.
#include "model_suite.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

/// A gated, dilated, causal convolution with residual and skip outputs.
struct WaveNetBlockImpl : temper::Module<WaveNetBlockImpl> {
  int64_t channels, dilation;
  nn::Conv1d filter{nullptr}, gate{nullptr}, residual{nullptr}, skip{nullptr};

  WaveNetBlockImpl(int64_t channels_, int64_t dilation_)
      : channels(channels_), dilation(dilation_) {
    reset();
  }
  void reset() override {
    const auto options =
        nn::Conv1dOptions(channels, channels, 2).dilation(dilation);
    const auto mix = nn::Conv1dOptions(channels, channels, 1);
    filter = register_module("filter", nn::Conv1d(options));
    gate = register_module("gate", nn::Conv1d(options));
    residual = register_module("residual", nn::Conv1d(mix));
    skip = register_module("skip", nn::Conv1d(mix));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    auto past = torch::constant_pad_nd(x, {dilation, 0});
    auto h = torch::tanh(filter(past)) * torch::sigmoid(gate(past));
    return {x + residual(h), skip(h)};
  }
};
TEMPER_MODULE(WaveNetBlock);

struct WaveNetImpl : temper::Module<WaveNetImpl> {
  nn::Conv1d in{nullptr}, out{nullptr};
  nn::ModuleList blocks{nullptr};

  WaveNetImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Conv1d(nn::Conv1dOptions(1, 4, 1)));
    nn::ModuleList list;
    for (const int64_t dilation : {1, 2, 4}) {
      list->push_back(WaveNetBlock(4, dilation));
    }
    blocks = register_module("blocks", list);
    out = register_module("out", nn::Conv1d(nn::Conv1dOptions(4, 8, 1)));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = in(x);
    torch::Tensor sum;
    for (const auto& module : *blocks) {
      auto [next, skip] = module->as<WaveNetBlock>()->forward(x);
      x = next;
      sum = sum.defined() ? sum + skip : skip;
    }
    return out(torch::relu(sum));
  }
};
TEMPER_MODULE(WaveNet);

struct WaveNetModel : Supervised<WaveNetModel, WaveNet> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randn({n, 1, 20}), torch::randint(8, {n, 20}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[1]);
  }
};
TEMPER_TEST_MODEL(WaveNet, WaveNetModel);

struct DecoderImpl : temper::Module<DecoderImpl> {
  nn::Linear in{nullptr};
  nn::ConvTranspose2d grow1{nullptr}, grow2{nullptr};
  nn::BatchNorm2d norm{nullptr};

  DecoderImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Linear(5, 6 * 2 * 2));
    grow1 = register_module(
        "grow1",
        nn::ConvTranspose2d(
            nn::ConvTranspose2dOptions(6, 4, 4).stride(2).padding(1)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    grow2 = register_module(
        "grow2",
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(4, 2, 3)
                                .stride(2)
                                .padding(1)
                                .output_padding(1)
                                .groups(2)));
  }
  torch::Tensor forward(torch::Tensor z) {
    auto x = torch::relu(in(z)).view({-1, 6, 2, 2});
    x = torch::leaky_relu(norm(grow1(x)), 0.2);
    return torch::tanh(grow2(x));
  }
};
TEMPER_MODULE(Decoder);

struct DecoderModel : Supervised<DecoderModel, Decoder> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randn({n, 5}).requires_grad_(), torch::randn({n, 2, 8, 8})};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto image = net(batch[0]);
    run.note("image", image);
    return torch::l1_loss(image, batch[1]);
  }
};
TEMPER_TEST_MODEL(ConvTranspose, DecoderModel);

struct NormNetImpl : temper::Module<NormNetImpl> {
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::GroupNorm group{nullptr};
  nn::InstanceNorm2d instance{nullptr};
  nn::Dropout2d dropout{nullptr};
  nn::Linear out{nullptr};

  NormNetImpl() {
    reset();
  }
  void reset() override {
    conv1 = register_module("conv1", nn::Conv2d(nn::Conv2dOptions(2, 6, 3)));
    group = register_module("group", nn::GroupNorm(nn::GroupNormOptions(3, 6)));
    conv2 = register_module(
        "conv2", nn::Conv2d(nn::Conv2dOptions(6, 6, 3).groups(6)));
    instance = register_module(
        "instance",
        nn::InstanceNorm2d(
            nn::InstanceNorm2dOptions(6).affine(true).track_running_stats(
                true)));
    dropout = register_module("dropout", nn::Dropout2d(0.3));
    out = register_module("out", nn::Linear(6, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::silu(group(conv1(x)));
    x = dropout(torch::elu(instance(conv2(x))));
    return out(x.mean({2, 3}));
  }
};
TEMPER_MODULE(NormNet);

struct NormNetModel : Supervised<NormNetModel, NormNet> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randn({n, 2, 8, 8}), torch::randint(3, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[1]);
  }
};
TEMPER_TEST_MODEL(GroupAndInstanceNorm, NormNetModel);

// Filters a signal by a complex weight for each frequency, and learns it.
TEST(Complex, ALearnedFilter) {
  const auto report = expect_same([](Trial& run) {
    auto w = torch::randn({9}, torch::kComplexFloat).requires_grad_();
    auto f = run.compile_function([](torch::Tensor x, torch::Tensor weight) {
      return torch::fft::irfft(torch::fft::rfft(x) * weight, x.size(-1));
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({2, 16}).requires_grad_();
      auto y = f(x, w);
      y.square().mean().backward();
      run.note("y", y);
      run.note_grad("x", x);
      run.note_grad("w", w);
      const torch::NoGradGuard no_grad;
      w.sub_(w.grad(), 0.1);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && program_calls == 4 &&
          program_backwards == 4);
}

// Conjugates are views with a bit that says so, as arguments, inside, and as
// results; so are negatives (the imaginary part of a conjugate).
TEST(Complex, LazyConjugatesAndNegatives) {
  using torch::Tensor;
  const auto report = expect_same([](Trial& run) {
    auto w = torch::randn({4}, torch::kComplexFloat).requires_grad_();
    auto f = run.compile_function(
        [](Tensor x, Tensor weight) -> std::tuple<Tensor, Tensor, Tensor> {
          auto y = x * weight.conj();
          return {
              y.conj(), torch::imag(y.conj()), torch::view_as_real(x * weight)};
        });
    for (int i = 0; i < 10; ++i) {
      auto leaf = torch::randn({3, 4}, torch::kComplexFloat).requires_grad_();
      // Another bit, another signature.
      auto [y, imag, real] = f(i % 2 == 0 ? leaf * 1 : (leaf * 1).conj(), w);
      run.note("y", y);
      run.note("imag", imag);
      run.note("real", real);
      (y.abs().sum() + imag.square().sum() + real.sum()).backward();
      run.note_grad("leaf", leaf);
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 2 && program_calls == 8 &&
          program_backwards == 8);
}

} // namespace
} // namespace temper::testing
