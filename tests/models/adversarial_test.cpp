// Two nets against each other: a GAN, and a critic with a gradient penalty.
#include "model_suite.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

struct GeneratorImpl : temper::Module<GeneratorImpl> {
  nn::Linear in{nullptr}, out{nullptr};
  nn::BatchNorm1d norm{nullptr};

  GeneratorImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Linear(3, 8));
    norm = register_module("norm", nn::BatchNorm1d(8));
    out = register_module("out", nn::Linear(8, 5));
  }
  torch::Tensor forward(torch::Tensor z) {
    return torch::tanh(out(torch::relu(norm(in(z)))));
  }
};
TEMPER_MODULE(Generator);

struct CriticImpl : temper::Module<CriticImpl> {
  nn::Linear in{nullptr}, out{nullptr};
  nn::Dropout dropout{nullptr};

  CriticImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Linear(5, 8));
    dropout = register_module("dropout", nn::Dropout(0.1));
    out = register_module("out", nn::Linear(8, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    return out(dropout(torch::leaky_relu(in(x), 0.2))).squeeze(-1);
  }
};
TEMPER_MODULE(Critic);

/// Both nets with their optimizers.
struct Opponents {
  Opponents(Trial& run, const Plan& plan)
      : generator_steps(make_optimizer(plan, generator->parameters())),
        critic_steps(make_optimizer(plan, critic->parameters())) {
    run.compile(generator);
    run.compile(critic);
  }
  static Batch batch(int64_t n) {
    return {torch::randn({n, 5}), torch::randn({n, 3})};
  }
  void evaluate(Trial& run, const Batch& batch) {
    const torch::NoGradGuard no_grad;
    generator->eval();
    critic->eval();
    auto fake = generator(batch[1]);
    run.note("fake", fake);
    run.note("score", critic(fake));
  }
  void note(Trial& run) {
    run.note_module("generator", *generator);
    run.note_module("critic", *critic);
  }

  Generator generator;
  Critic critic;
  std::unique_ptr<torch::optim::Optimizer> generator_steps, critic_steps;
};

struct GanModel : Opponents {
  using Opponents::Opponents;
  // The critic on real and fake: one backward for both. Then critic and
  // generator in one.
  static constexpr Work kWork = {
      .signatures = 5,
      .graphs = 5,
      .backwards = 4,
      .waiting = 1};

  void train(Trial& run, const Batch& batch) {
    generator->train();
    critic->train();
    auto fake = generator(batch[1]);
    run.note("fake", fake);

    critic_steps->zero_grad();
    auto real_score = critic(batch[0]);
    auto fake_score = critic(fake.detach());
    auto critic_loss = torch::binary_cross_entropy_with_logits(
                           real_score, torch::ones_like(real_score)) +
        torch::binary_cross_entropy_with_logits(
                           fake_score, torch::zeros_like(fake_score));
    critic_loss.backward();
    run.note("critic loss", critic_loss);
    run.note_grad("generator so far", generator->in->weight);
    critic_steps->step();

    generator_steps->zero_grad();
    auto score = critic(fake);
    auto loss =
        torch::binary_cross_entropy_with_logits(score, torch::ones_like(score));
    loss.backward();
    run.note("generator loss", loss);
    generator_steps->step();
  }
};
TEMPER_TEST_MODEL(Gan, GanModel);

struct PenaltyModel : Opponents {
  using Opponents::Opponents;
  // A second derivative of the critic's call, which is therefore eager; the
  // other three calls of a step are compiled, two of them with the backward.
  static constexpr Work kWork = {
      .signatures = 4,
      .graphs = 4,
      .backwards = 2,
      .waiting = 1,
      .failed_traces = 1,
      .eager = 4,
      .reason = "double backward (create_graph) through the call"};

  void train(Trial& run, const Batch& batch) {
    generator->train();
    critic->train();
    critic_steps->zero_grad();
    auto fake = generator(batch[1]).detach();
    auto mix = torch::rand({batch[0].size(0), 1});
    auto between =
        (mix * batch[0] + (1 - mix) * fake).detach().requires_grad_();
    auto score = critic(between);
    auto slope = torch::autograd::grad(
        {score.sum()},
        {between},
        {},
        /*retain_graph=*/true,
        /*create_graph=*/true)[0];
    run.note("slope", slope);
    auto loss = critic(fake).mean() - critic(batch[0]).mean() +
        10 * (slope.norm(2, 1) - 1).pow(2).mean();
    loss.backward();
    run.note("loss", loss);
    run.note_grad("between", between);
    critic_steps->step();
  }
};
TEMPER_TEST_MODEL(GradientPenalty, PenaltyModel);

} // namespace
} // namespace temper::testing
