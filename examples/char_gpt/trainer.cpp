// Steps, validation, and their measurement.
#include "char_gpt/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>

namespace char_gpt {

namespace {

namespace F = torch::nn::functional;
using examples::MemoryAccount;

/// Steps that temper needs to trace, prove and compile are among these; caches
/// and allocators warm up in them on both sides.
constexpr size_t kWarmup = 5;
constexpr double kMaxNorm = 1.0;
constexpr double kWeightDecay = 0.1;

/// Puts a state of the default CPU generator in place for a scope, takes it
/// out again as it is then, and restores what was there.
class GeneratorScope {
 public:
  explicit GeneratorScope(torch::Tensor& state)
      : generator_(at::detail::getDefaultCPUGenerator()),
        outer_(generator_.get_state()),
        state_(state) {
    generator_.set_state(state_);
  }
  ~GeneratorScope() {
    state_ = generator_.get_state();
    generator_.set_state(outer_);
  }
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  at::Generator generator_;
  torch::Tensor outer_;
  torch::Tensor& state_;
};

Gpt make_model(const GptConfig& config, const Options& options) {
  torch::manual_seed(options.seed);
  return Gpt(config);
}

/// Matrices decay, biases and normalisation weights do not.
std::unique_ptr<torch::optim::AdamW> make_optimizer(
    const Gpt& model,
    double rate) {
  std::vector<torch::Tensor> matrices;
  std::vector<torch::Tensor> others;
  for (const torch::Tensor& p : model->parameters()) {
    (p.dim() >= 2 ? matrices : others).push_back(p);
  }
  const auto group = [&](std::vector<torch::Tensor> parameters, double decay) {
    auto options = std::make_unique<torch::optim::AdamWOptions>(rate);
    options->betas({0.9, 0.95}).weight_decay(decay);
    return torch::optim::OptimizerParamGroup(
        std::move(parameters), std::move(options));
  };
  return std::make_unique<torch::optim::AdamW>(std::vector{
      group(std::move(matrices), kWeightDecay), group(std::move(others), 0)});
}

torch::Tensor loss_of(Gpt& model, const Batch& batch) {
  const torch::Tensor logits = model(batch.tokens);
  return F::cross_entropy(logits.flatten(0, 1), batch.targets.flatten());
}

int64_t resident_bytes(const Gpt& model) {
  int64_t bytes = 0;
  for (const torch::Tensor& p : model->parameters()) {
    bytes += 3 * static_cast<int64_t>(p.nbytes()); // and Adam's two moments
  }
  for (const torch::Tensor& b : model->buffers()) {
    bytes += static_cast<int64_t>(b.nbytes());
  }
  return bytes;
}

double median(std::vector<double> values) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

} // namespace

Trainer::Trainer(
    std::string name,
    const Options& options,
    const GptConfig& config,
    bool compiled)
    : name_(std::move(name)), compiled_(compiled) {
  const MemoryAccount::Use use(memory_);
  model = make_model(config, options);
  optimizer = make_optimizer(model, options.lr);
  generator_state = at::detail::getDefaultCPUGenerator().get_state();
  if (compiled_) {
    model->compile(temper::CompileOptions()
                       .backend(options.backend)
                       .numerics(options.numerics));
  }
}

void Trainer::train(const Batch& batch, double rate) {
  const MemoryAccount::Use use(memory_);
  const GeneratorScope generator(generator_state);
  model->train();
  memory_.reset_peak();
  const auto start = std::chrono::steady_clock::now();

  for (auto& group : optimizer->param_groups()) {
    group.options().set_lr(rate);
  }
  optimizer->zero_grad();
  torch::Tensor loss = loss_of(model, batch);
  loss.backward();
  torch::nn::utils::clip_grad_norm_(model->parameters(), kMaxNorm);
  optimizer->step();
  losses.push_back(loss.item<float>());

  const std::chrono::duration<double> spent =
      std::chrono::steady_clock::now() - start;
  seconds_.push_back(spent.count());
  if (seconds_.size() > kWarmup) {
    const int64_t bytes = memory_.peak_bytes() - resident_bytes(model);
    step_bytes_ = std::max(step_bytes_.value_or(bytes), bytes);
  }
  if (!std::isfinite(losses.back())) {
    throw std::runtime_error(
        "the " + name_ + " loss is not finite any more at step " +
        std::to_string(losses.size()) +
        "; the learning rate is too high for this model; lower --lr");
  }
}

void Trainer::validate(const std::vector<Batch>& batches) {
  const MemoryAccount::Use use(memory_);
  const torch::NoGradGuard no_grad;
  model->eval();
  double sum = 0;
  for (const Batch& batch : batches) {
    sum += loss_of(model, batch).item<float>();
  }
  validation.push_back(sum / static_cast<double>(batches.size()));
}

std::optional<double> Trainer::step_seconds() const {
  if (seconds_.size() <= kWarmup) {
    return std::nullopt;
  }
  return median({seconds_.begin() + kWarmup, seconds_.end()});
}

std::optional<double> Trainer::compile_seconds() const {
  const std::optional<double> warm = step_seconds();
  if (!compiled_ || !warm) {
    return std::nullopt;
  }
  return std::max(seconds_[0] + seconds_[1] - 2 * *warm, 0.0);
}

std::optional<int64_t> Trainer::step_bytes() const {
  return step_bytes_;
}

} // namespace char_gpt
