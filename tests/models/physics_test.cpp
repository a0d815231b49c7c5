// Molecular dynamics: forces as gradients inside forward, neighbour sums.
#include "model_suite.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

/// A pair potential that is learnt, and its forces.
struct PotentialImpl : temper::Module<PotentialImpl> {
  nn::Linear in{nullptr}, out{nullptr};

  PotentialImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Linear(6, 8));
    out = register_module("out", nn::Linear(8, 1));
  }
  torch::Tensor energy(const torch::Tensor& pos) {
    const auto n = pos.size(0);
    auto delta = pos.unsqueeze(1) - pos.unsqueeze(0);
    auto other =
        torch::ones({n, n}, pos.options()) - torch::eye(n, pos.options());
    auto distance = (delta.pow(2).sum(-1) + 1e-3).sqrt();
    auto centres = torch::linspace(0.5, 3.0, 6, pos.options());
    auto features = torch::exp(-(distance.unsqueeze(-1) - centres).pow(2));
    auto pair = out(torch::tanh(in(features))).squeeze(-1) * other;
    return 0.5 * pair.sum();
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(torch::Tensor pos) {
    // Forces are wanted from callers that want no gradients, too.
    const torch::AutoGradMode with_grad(true);
    pos = pos.detach().requires_grad_();
    auto e = energy(pos);
    auto forces = -torch::autograd::grad(
        {e},
        {pos},
        /*grad_outputs=*/{},
        /*retain_graph=*/is_training(),
        /*create_graph=*/is_training())[0];
    return {e, forces};
  }
};
TEMPER_MODULE(Potential);

struct ForcesModel : Supervised<ForcesModel, Potential> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {torch::randn({n + 2, 3}), torch::randn({n + 2, 3})};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto [energy, forces] = net(batch[0]);
    run.note("energy", energy);
    run.note("forces", forces);
    return torch::mse_loss(forces, batch[1]) + 0.1 * energy.pow(2);
  }
};
TEMPER_TEST_MODEL(EnergyAndForces, ForcesModel);

/// Message passing over a list of edges, in double.
struct NeighboursImpl : temper::Module<NeighboursImpl> {
  nn::Linear message{nullptr}, update{nullptr}, out{nullptr};

  NeighboursImpl() {
    reset();
  }
  void reset() override {
    message = register_module("message", nn::Linear(2 * 5 + 1, 5));
    update = register_module("update", nn::Linear(2 * 5, 5));
    out = register_module("out", nn::Linear(5, 1));
    to(torch::kDouble);
  }
  torch::Tensor forward(
      torch::Tensor nodes,
      torch::Tensor edges,
      torch::Tensor lengths) {
    auto from = edges[0], into = edges[1];
    for (int round = 0; round < 2; ++round) {
      auto ends = torch::cat(
          {nodes.index_select(0, from),
           nodes.index_select(0, into),
           lengths.unsqueeze(1)},
          1);
      auto sums = torch::zeros_like(nodes).index_add(
          0, into, torch::silu(message(ends)));
      nodes = nodes + torch::tanh(update(torch::cat({nodes, sums}, 1)));
    }
    return out(nodes).sum(0);
  }
};
TEMPER_MODULE(Neighbours);

struct NeighboursModel : Supervised<NeighboursModel, Neighbours> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    const auto options = torch::kDouble;
    return {
        torch::randn({n + 1, 5}, options).requires_grad_(),
        torch::randint(n + 1, {2, 3 * n}, torch::kLong),
        torch::rand({3 * n}, options).requires_grad_()};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto energy = net(batch[0], batch[1], batch[2]);
    run.note("energy", energy);
    return energy.pow(2).sum();
  }
};
TEMPER_TEST_MODEL(NeighbourSums, NeighboursModel);

} // namespace
} // namespace temper::testing
