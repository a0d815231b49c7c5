// Small models, calls that are admitted: what is won or lost in every call.
#include <string>
#include <vector>

#include <temper/temper.h>
#include <torch/torch.h>

#include "models.h"
#include "suites.h"

namespace bench {

namespace {

constexpr const char* kAdamW = "adamw";

// What AdamW has for each parameter.
struct AdamWState {
  std::vector<torch::Tensor> parameters, gradients, means, squares;
  torch::Tensor steps = torch::zeros({});
};

// One step, in place. The number of steps is a tensor: so it is no constant.
torch::Tensor adamw(
    std::vector<torch::Tensor> parameters,
    std::vector<torch::Tensor> gradients,
    std::vector<torch::Tensor> means,
    std::vector<torch::Tensor> squares,
    torch::Tensor steps) {
  constexpr double kRate = 1e-3, kDecay = 0.01, kBeta1 = 0.9, kBeta2 = 0.999;
  const torch::NoGradGuard no_grad;
  steps.add_(1);
  const auto rate = kRate / (1 - torch::pow(kBeta1, steps));
  const auto correction = torch::sqrt(1 - torch::pow(kBeta2, steps));
  for (size_t i = 0; i < parameters.size(); ++i) {
    means[i].lerp_(gradients[i], 1 - kBeta1);
    squares[i].mul_(kBeta2).addcmul_(gradients[i], gradients[i], 1 - kBeta2);
    const auto root = squares[i].sqrt().div_(correction).add_(1e-8);
    parameters[i].mul_(1 - kRate * kDecay).sub_(means[i] / root * rate);
  }
  return steps;
}

void run_adamw(const Context& context) {
  const Subject subject = tiny_models().back().make();
  AdamWState state;
  state.parameters = subject.parameters;
  for (const auto& parameter : state.parameters) {
    state.gradients.push_back(torch::randn_like(parameter));
    state.means.push_back(torch::zeros_like(parameter));
    state.squares.push_back(torch::zeros_like(parameter));
  }
  const auto compiled = temper::compile(adamw);
  const auto call = [&](const auto& function) {
    function(
        state.parameters,
        state.gradients,
        state.means,
        state.squares,
        state.steps);
  };
  temper::reset_counters();
  const auto samples = interleave(
      context.timing, {{[&] { call(compiled); }}, {[&] { call(adamw); }}});
  const Row row = make_row("models", kAdamW, Mode::kOpt, samples);
  require_programs(row);
  context.emit(row);
}

void run(const Context& context) {
  if (context.wanted(kAdamW)) {
    run_adamw(context);
  }
  for (const Model& model : small_models()) {
    if (!context.wanted(model.name)) {
      continue;
    }
    const Subject subject = model.make();
    for (const Mode mode : {Mode::kInfer, Mode::kTrain}) {
      const ModeScope scope(subject, mode);
      const CompiledNet compiled = subject.compile();
      temper::reset_counters();
      const auto samples = interleave(
          context.timing, {{[&] { step(subject, mode, compiled.call); }}, {[&] {
                             step(subject, mode, subject.eager);
                           }}});
      const Row row = make_row("models", model.name, mode, samples);
      require_programs(row);
      context.emit(row);
    }
  }
}

} // namespace

Suite models_suite() {
  std::vector<std::string> names = {kAdamW};
  for (const Model& model : small_models()) {
    names.emplace_back(model.name);
  }
  return {"models", names, run};
}

} // namespace bench
