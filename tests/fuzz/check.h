// Runs a case without temper and with it, and finds what differs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <temper/temper.h>

#include "fuzz_case.h"
#include "support/compare.h"

namespace temper::fuzz {

/// The program as a function without state.
struct Function {
  const Program* program;
  int64_t training; // No bool: what pads it is watched, too.

  Tensors operator()(Tensors arguments, double factor) const {
    return interpret(*program, std::move(arguments), factor, training != 0);
  }
  TEMPER_IGNORE(program)
};

/// What both modules do.
template <class Base>
struct NetBase : Base {
  const Program* program = nullptr;

  void reset() override {}
  Tensors forward(Tensors arguments, double factor) {
    for (const Tensor& t : this->parameters(/*recurse=*/false)) {
      arguments.push_back(t);
    }
    for (const Tensor& t : this->buffers(/*recurse=*/false)) {
      arguments.push_back(t);
    }
    return interpret(
        *program, std::move(arguments), factor, this->is_training());
  }
  void fill(const Program* p, const Tensors& parameters, const Tensors& all) {
    program = p;
    for (size_t i = 0; i < parameters.size(); ++i) {
      this->register_parameter(
          "p" + std::to_string(i),
          parameters[i],
          parameters[i].requires_grad());
    }
    for (size_t i = 0; i < all.size(); ++i) {
      this->register_buffer("b" + std::to_string(i), all[i]);
    }
  }
  TEMPER_IGNORE(program)
};

struct NetImpl : NetBase<temper::Module<NetImpl>> {};
TEMPER_MODULE(Net);

struct PlainNetImpl : NetBase<torch::nn::Cloneable<PlainNetImpl>> {};
TORCH_MODULE(PlainNet);

/// One run of a case, as a Trial's scenario.
class Scenario {
 public:
  Scenario(const Case& fuzz, testing::Trial& run)
      : fuzz_(fuzz), run_(run), data_(fuzz.seed) {}

  void operator()() {
    torch::manual_seed(fuzz_.seed);
    for (const TensorSpec& spec : fuzz_.parameters) {
      parameters_.push_back(data_.make(spec, 3, parameters_));
    }
    for (const TensorSpec& spec : fuzz_.buffers) {
      buffers_.push_back(data_.make(spec, 3, {}));
    }
    wrap();
    for (size_t i = 0; i < fuzz_.schedule.calls.size(); ++i) {
      prefix_ = "call " + std::to_string(i) + " ";
      call(fuzz_.schedule.calls[i], i);
    }
  }

 private:
  void wrap() {
    const Program* const program = &fuzz_.program;
    switch (fuzz_.schedule.wrapper) {
      case Schedule::Wrapper::kModule: {
        Net net;
        net->fill(program, parameters_, buffers_);
        run_.compile(net);
        code_ = [net](Tensors arguments, const CallSpec& call) mutable {
          net->train(call.training);
          return net(std::move(arguments), call.factor);
        };
        break;
      }
      case Schedule::Wrapper::kPlainModule: {
        PlainNet net;
        net->fill(program, parameters_, buffers_);
        auto f = run_.compile_function(net);
        code_ = [net, f](Tensors arguments, const CallSpec& call) mutable {
          net->train(call.training);
          return f(std::move(arguments), call.factor);
        };
        break;
      }
      case Schedule::Wrapper::kFunction: {
        auto train = run_.compile_function(Function{program, 1});
        auto eval = run_.compile_function(Function{program, 0});
        code_ = [train, eval](Tensors arguments, const CallSpec& call) mutable {
          return (call.training ? train : eval)(
              std::move(arguments), call.factor);
        };
        break;
      }
    }
  }

  void note(const char* what, const Tensors& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const std::string name = prefix_ + what + " " + std::to_string(i);
      // Looking at a view whose base changed makes its history, or throws.
      run_.attempt(name, [&] {
        static_cast<void>(tensors[i].defined() && tensors[i].grad_fn());
        run_.note(name, tensors[i]);
      });
    }
  }
  void note_gradients(const char* what, const Tensors& leaves) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].is_leaf()) {
        continue;
      }
      run_.note_grad(prefix_ + what + " " + std::to_string(i), leaves[i]);
    }
  }

  void call(const CallSpec& spec, size_t number) {
    leaves_.clear();
    Tensors arguments;
    for (const TensorSpec& argument : fuzz_.arguments) {
      leaves_.push_back(data_.make(argument, spec.batch, leaves_));
    }
    for (size_t i = 0; i < leaves_.size(); ++i) {
      arguments.push_back(
          fuzz_.arguments[i].leaf ? leaves_[i] : leaves_[i].clone());
    }
    if (!parameters_.empty()) {
      parameters_[0].set_requires_grad(
          fuzz_.parameters[0].requires_grad && !spec.freeze);
    }
    Tensors outputs;
    const bool returned = run_.attempt(prefix_, [&] {
      const torch::AutoGradMode mode(spec.grad);
      outputs = code_(arguments, spec);
    });
    note("output", outputs);
    note("argument", arguments);
    note("parameter", parameters_);
    note("buffer", buffers_);
    run_.note_generator();
    if (returned && fuzz_.schedule.write_outputs) {
      write(outputs);
      note("argument after writes", arguments);
      note("buffer after writes", buffers_);
    }
    if (returned && fuzz_.schedule.backward != Schedule::Backward::kNone) {
      run_.attempt(prefix_ + "backward", [&] { backward(outputs, number); });
      outputs.clear();
      note_gradients("argument", leaves_);
      note_gradients("parameter", parameters_);
      run_.note_generator();
      run_.attempt(prefix_ + "step", [&] { after_backward(); });
    }
  }

  // What a caller may do with results.
  void write(Tensors& outputs) {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < outputs.size(); ++i) {
      run_.attempt(prefix_ + "write " + std::to_string(i), [&] {
        outputs[i].detach().logical_not_();
      });
    }
    note("written output", outputs);
  }

  Tensor grad_output(const Tensor& output) {
    const auto sizes = output.sizes();
    if (fuzz_.schedule.layout == 1) {
      return data_.normal({}, output.scalar_type()).expand(sizes);
    }
    if (fuzz_.schedule.layout == 2 && output.dim() >= 2) {
      return data_.normal(output.transpose(0, -1).sizes(), output.scalar_type())
          .transpose(0, -1);
    }
    return data_.normal(sizes, output.scalar_type());
  }

  void backward(const Tensors& outputs, size_t number) {
    const Schedule& s = fuzz_.schedule;
    uint32_t bits = s.roots;
    if (s.varying_roots) {
      bits ^= static_cast<uint32_t>(number / 2);
    }
    Tensors roots;
    Tensors gradients;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (((bits >> (i % 32)) & 1U) != 0 && outputs[i].defined() &&
          outputs[i].requires_grad()) {
        roots.push_back(outputs[i]);
        gradients.push_back(grad_output(outputs[i]));
      }
    }
    if (roots.empty()) {
      return;
    }
    using Backward = Schedule::Backward;
    if (s.backward == Backward::kBackward) {
      torch::autograd::backward(roots, gradients);
      return;
    }
    if (s.backward == Backward::kTwice) {
      torch::autograd::backward(roots, gradients, /*retain_graph=*/true);
      torch::autograd::backward(roots, gradients);
      return;
    }
    Tensors inputs;
    for (const Tensors* list : {&leaves_, &parameters_}) {
      for (const Tensor& t : *list) {
        if (t.requires_grad()) {
          inputs.push_back(t);
        }
      }
    }
    if (inputs.empty()) {
      return;
    }
    const bool twice = s.backward == Backward::kDouble;
    auto result = torch::autograd::grad(
        roots,
        inputs,
        gradients,
        /*retain_graph=*/twice,
        /*create_graph=*/twice,
        /*allow_unused=*/true);
    note("gradient", result);
    if (twice) {
      Tensor sum = torch::zeros({}, torch::kDouble);
      for (Tensor gradient : result) {
        if (gradient.defined() && gradient.requires_grad()) {
          if (gradient.is_complex()) {
            gradient = torch::view_as_real(gradient.resolve_conj());
          }
          sum = sum + gradient.square().sum().to(torch::kDouble);
        }
      }
      if (sum.requires_grad()) {
        sum.backward();
      }
    }
  }

  void after_backward() {
    const torch::NoGradGuard no_grad;
    for (Tensor& p : parameters_) {
      if (!p.grad().defined()) {
        continue;
      }
      if (fuzz_.schedule.step) {
        p.add_(p.grad(), -0.125);
      }
      if (fuzz_.schedule.zero_grad == 1) {
        p.mutable_grad().reset();
      } else if (fuzz_.schedule.zero_grad == 2) {
        p.mutable_grad().zero_();
      }
    }
  }

  const Case& fuzz_;
  testing::Trial& run_;
  Data data_;
  Tensors parameters_;
  Tensors buffers_;
  Tensors leaves_; ///< Of this call's arguments.
  std::function<Tensors(Tensors, const CallSpec&)> code_;
  std::string prefix_;
};

/// What a case showed.
struct Outcome {
  std::string difference; ///< Empty iff both runs showed the same.
  bool threw = false; ///< An eager call or backward threw.
  bool wanted_backward = false; ///< A backward ran.
  Counters counters; ///< Of the run with temper.
};

/// What calls and backwards throw without temper; empty if nothing.
inline std::string throws_eagerly(const Case& fuzz) {
  testing::Trial run(false, fuzz.seed);
  Scenario scenario(fuzz, run);
  scenario();
  std::string result;
  for (const auto& seen : run.transcript().observations()) {
    if (seen.facts.starts_with("threw ")) {
      result += seen.facts + '\n';
    }
  }
  return result;
}

/// Runs a case both ways.
inline Outcome check(const Case& fuzz) {
  Outcome result;
  testing::Trial eager(false, fuzz.seed);
  {
    Scenario scenario(fuzz, eager);
    scenario();
  }
  const Counters before = temper::counters();
  testing::Trial compiled(true, fuzz.seed);
  try {
    Scenario scenario(fuzz, compiled);
    scenario();
  } catch (const std::exception& error) {
    result.difference =
        std::string("the compiled run threw ") + error.what() + '\n';
  }
  result.counters = testing::subtract(temper::counters(), before);
  for (const auto& [reason, count] : result.counters.eager_calls) {
    if (reason.starts_with("an internal error")) {
      result.difference += reason + '\n';
    }
  }
  const auto& expected = eager.transcript().observations();
  const auto& actual = compiled.transcript().observations();
  int shown = 0;
  for (size_t i = 0; i < std::min(expected.size(), actual.size()); ++i) {
    result.threw |= expected[i].facts.starts_with("threw ");
    result.wanted_backward |=
        expected[i].name.ends_with(".grad") && expected[i].values.defined();
    if (shown < 4) {
      if (const auto text = testing::difference(expected[i], actual[i], {})) {
        result.difference += *text + '\n';
        ++shown;
      }
    }
  }
  for (const auto* const seen : {&expected, &actual}) {
    for (const auto& each : *seen) {
      if (!result.difference.empty() && each.facts.starts_with("threw ")) {
        result.difference += seen == &actual ? "compiled, " : "eager, ";
        result.difference += each.name + ": " + each.facts + '\n';
        break;
      }
    }
  }
  if (expected.size() != actual.size() && result.difference.empty()) {
    result.difference = "more or fewer things were seen\n";
  }
  return result;
}

} // namespace temper::fuzz
