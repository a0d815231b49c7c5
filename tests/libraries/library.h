// What each of two libraries exports that know nothing of each other.
#pragma once

#include <torch/torch.h>

#include <memory>

#include <temper/counters.h>

struct Library {
  std::shared_ptr<torch::nn::Module> (*make)();
  void (*compile)(torch::nn::Module& net);
  torch::Tensor (*call)(torch::nn::Module& net, const torch::Tensor& x);
  torch::Tensor (*forward)(torch::nn::Module& net, const torch::Tensor& x);
  temper::Counters (*counters)(torch::nn::Module& net);
  /// Changes a field.
  void (*change)(torch::nn::Module& net);
};

/// The name under which a library has a `const Library* (*)()`.
constexpr const char* kLibrarySymbol = "temper_test_library";
