// A net to measure: eager, and through call sites of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <temper/temper.h>
#include <torch/torch.h>

#include "report.h"

namespace bench {

/// A call site of a net.
struct CompiledNet {
  temper::Compiled site;
  std::function<torch::Tensor(const torch::Tensor&)> call;
};

/// A net and an input. It is not compiled itself; all its call sites, and eager
/// calls, work on the same weights in the same memory.
struct Subject {
  std::string name;
  torch::Tensor input;
  std::shared_ptr<torch::nn::Module> module;
  std::vector<torch::Tensor> parameters;
  std::function<torch::Tensor(const torch::Tensor&)> eager;
  std::function<CompiledNet()> compile;
};

/// `net` is a holder. Its `forward` takes a tensor and returns one.
template <class Net>
Subject make_subject(std::string name, Net net, torch::Tensor input) {
  Subject subject;
  subject.name = std::move(name);
  subject.input = std::move(input);
  subject.module = net.ptr();
  subject.parameters = net->parameters();
  subject.eager = [net](const torch::Tensor& x) mutable {
    return net->forward(x);
  };
  subject.compile = [net] {
    const auto compiled = temper::compile(net);
    return CompiledNet{
        compiled, [compiled](const torch::Tensor& x) { return compiled(x); }};
  };
  return subject;
}

/// A call site that can be made to forget its signatures: other options do it.
/// What was compiled is kept in the process, so that no call but the very first
/// with a graph pays for a compile.
class FreshSite {
 public:
  explicit FreshSite(const Subject& subject) : net_(subject.compile()) {}

  void forget() {
    options_.max_signatures(options_.max_signatures() ^ 1);
    net_.site.set_options(options_);
  }
  const CompiledNet& net() const {
    return net_;
  }

 private:
  temper::CompileOptions options_;
  CompiledNet net_;
};

/// While it lives, the subject and the thread are in the mode.
class ModeScope {
 public:
  ModeScope(const Subject& subject, Mode mode) : grad_(mode == Mode::kTrain) {
    subject.module->train(mode == Mode::kTrain);
  }

 private:
  torch::AutoGradMode grad_;
};

/// The gradients of a loss of the output go to the parameters, afresh.
inline void backward(const Subject& subject, const torch::Tensor& output) {
  for (const torch::Tensor& p : subject.parameters) {
    p.mutable_grad().reset();
  }
  output.square().mean().backward();
}

/// A call of the mode: forward, in training backward too.
inline void step(
    const Subject& subject,
    Mode mode,
    const std::function<torch::Tensor(const torch::Tensor&)>& forward) {
  const torch::Tensor output = forward(subject.input);
  if (mode == Mode::kTrain) {
    backward(subject, output);
  }
}

} // namespace bench
