// Reinforcement learning: DQN with a target net, PPO with an actor-critic.
#include "model_suite.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

struct QNetImpl : temper::Module<QNetImpl> {
  nn::Linear in{nullptr}, advantage{nullptr}, value{nullptr};

  QNetImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Linear(4, 12));
    advantage = register_module("advantage", nn::Linear(12, 3));
    value = register_module("value", nn::Linear(12, 1));
  }
  torch::Tensor forward(torch::Tensor x) {
    auto h = torch::relu(in(x));
    auto a = advantage(h);
    return value(h) + a - a.mean(1, /*keepdim=*/true);
  }
};
TEMPER_MODULE(QNet);

struct DqnModel {
  // The net with grad and without, and the target net, whose graph is the
  // latter's.
  static constexpr Work kWork = {.signatures = 3};

  DqnModel(Trial& run, const Plan& plan)
      : target(std::dynamic_pointer_cast<QNetImpl>(net->clone())),
        optimizer(make_optimizer(plan, net->parameters())) {
    run.compile(target);
    run.compile(net);
  }
  /// Observation, action, reward, next observation, whether it was the last.
  static Batch batch(int64_t n) {
    return {
        torch::randn({n, 4}),
        torch::randint(3, {n}, torch::kLong),
        torch::randn({n}),
        torch::randn({n, 4}),
        torch::rand({n}) < 0.2};
  }
  void train(Trial& run, const Batch& batch) {
    torch::Tensor wanted;
    {
      const torch::NoGradGuard no_grad;
      // Double DQN: the net chooses, the target net judges.
      auto best = net(batch[3]).argmax(1, true);
      auto next = target(batch[3]).gather(1, best).squeeze(1);
      wanted = batch[2] + 0.9 * next * (1 - batch[4].to(torch::kFloat));
      run.note("wanted", wanted);
    }
    auto q = net(batch[0]);
    run.note("q", q);
    auto loss = torch::smooth_l1_loss(
        q.gather(1, batch[1].unsqueeze(1)).squeeze(1), wanted);
    optimizer->zero_grad();
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net->parameters(), 1.0);
    optimizer->step();
    run.note("loss", loss);

    const torch::NoGradGuard no_grad;
    auto sources = net->parameters();
    auto targets = target->parameters();
    for (size_t i = 0; i < targets.size(); ++i) {
      targets[i].mul_(0.9).add_(sources[i], 0.1);
    }
  }
  void evaluate(Trial& run, const Batch& batch) {
    const torch::NoGradGuard no_grad;
    run.note("q", net(batch[0]));
    run.note("target q", target(batch[0]));
  }
  void note(Trial& run) {
    run.note_module("net", *net);
    run.note_module("target", *target);
  }

  QNet net;
  QNet target;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};
TEMPER_TEST_MODEL(Dqn, DqnModel);

struct ActorCriticImpl : temper::Module<ActorCriticImpl> {
  nn::Linear body{nullptr}, actor{nullptr}, critic{nullptr};

  ActorCriticImpl() {
    reset();
  }
  void reset() override {
    body = register_module("body", nn::Linear(4, 10));
    actor = register_module("actor", nn::Linear(10, 3));
    critic = register_module("critic", nn::Linear(10, 1));
  }
  /// Log-probabilities of the actions, their entropy, the value.
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
      torch::Tensor x) {
    auto h = torch::tanh(body(x));
    auto logp = torch::log_softmax(actor(h), -1);
    auto entropy = -(logp.exp() * logp).sum(-1);
    return {logp, entropy, critic(h).squeeze(-1)};
  }
};
TEMPER_MODULE(ActorCritic);

struct PpoModel {
  static constexpr Work kWork = {.backwards = 2};

  PpoModel(Trial& run, const Plan& plan)
      : optimizer(make_optimizer(plan, net->parameters())) {
    run.compile(net);
  }
  static Batch batch(int64_t n) {
    return {torch::randn({n, 4}), torch::randn({n})};
  }
  void train(Trial& run, const Batch& batch) {
    torch::Tensor action, old_logp, advantage;
    {
      const torch::NoGradGuard no_grad;
      auto [logp, entropy, value] = net(batch[0]);
      action = logp.exp().multinomial(1);
      old_logp = logp.gather(1, action);
      advantage = batch[1] - value;
      run.note("action", action);
      run.note("entropy", entropy);
    }
    for (int epoch = 0; epoch < 2; ++epoch) {
      auto [logp, entropy, value] = net(batch[0]);
      auto ratio = (logp.gather(1, action) - old_logp).exp().squeeze(1);
      auto surrogate =
          torch::min(ratio * advantage, ratio.clamp(0.9, 1.1) * advantage);
      auto loss = -surrogate.mean() + 0.5 * torch::mse_loss(value, batch[1]) -
          0.01 * entropy.mean();
      optimizer->zero_grad();
      loss.backward();
      optimizer->step();
      run.note("logp", logp);
      run.note("value", value);
      run.note("loss", loss);
    }
  }
  void evaluate(Trial& run, const Batch& batch) {
    const torch::NoGradGuard no_grad;
    run.note("all", net(batch[0]));
  }
  void note(Trial& run) {
    run.note_module("net", *net);
  }

  ActorCritic net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};
TEMPER_TEST_MODEL(Ppo, PpoModel);

} // namespace
} // namespace temper::testing
