// Small nets that many cases use.
#pragma once

#include <torch/torch.h>

#include <temper/temper.h>

namespace temper::testing {

/// Two layers and a tanh: 4 → 5 → 3.
struct TwoLayersImpl : temper::Module<TwoLayersImpl> {
  torch::nn::Linear first{nullptr}, second{nullptr};

  TwoLayersImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 5));
    second = register_module("second", torch::nn::Linear(5, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    return second(torch::tanh(first(x)));
  }
};
TEMPER_MODULE(TwoLayers);

/// With everything that differs between training and evaluation: 4 → 6 → 3.
struct NoisyNetImpl : temper::Module<NoisyNetImpl> {
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};

  NoisyNetImpl() {
    reset();
  }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 6));
    norm = register_module("norm", torch::nn::BatchNorm1d(6));
    dropout = register_module("dropout", torch::nn::Dropout(0.4));
    last = register_module("last", torch::nn::Linear(6, 3));
  }
  torch::Tensor forward(torch::Tensor x) {
    return last(dropout(torch::relu(norm(first(x)))));
  }
};
TEMPER_MODULE(NoisyNet);

} // namespace temper::testing
