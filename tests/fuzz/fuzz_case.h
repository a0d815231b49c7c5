// A fuzz case: a program, the tensors that it is given, and how it is called.
#pragma once

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "program.h"

namespace temper::fuzz {

/// A size that follows the batch size of the call.
constexpr int64_t kBatch = -1;

/// A tensor that is made anew for each trial (arguments: for each call).
struct TensorSpec {
  enum class Layout : uint8_t { kDense, kTransposed, kSlice, kExpanded };
  torch::Dtype dtype = torch::kFloat;
  std::vector<int64_t> sizes; ///< kBatch where the call says.
  Layout layout = Layout::kDense;
  bool requires_grad = false;
  bool leaf = true; ///< False: has a history.
  int same_as = -1; ///< That argument (parameter) itself.
  int view_of = -1; ///< A view of that argument: its rows from 1 on.
};

/// One call of the program.
struct CallSpec {
  int64_t batch = 3;
  double factor = 0.5;
  bool training = true;
  bool grad = true; ///< False: under NoGradGuard.
  bool freeze = false; ///< The first parameter wants no gradient.
};

/// How a case is run.
struct Schedule {
  enum class Wrapper : uint8_t { kModule, kPlainModule, kFunction };
  enum class Backward : uint8_t { kNone, kBackward, kGrad, kTwice, kDouble };
  Wrapper wrapper = Wrapper::kModule;
  Backward backward = Backward::kNone;
  std::vector<CallSpec> calls;
  uint32_t roots = ~0U; ///< Bit i: output i gets a gradient.
  bool varying_roots = false; ///< Other ones in each call.
  int layout = 0; ///< Of grad_outputs: dense, expanded, transposed.
  bool step = false; ///< The parameters move after each backward.
  int zero_grad = 0; ///< After a call: not, to none, to zero.
  bool write_outputs = false; ///< The caller writes to the results.
};

struct Case {
  uint64_t seed = 0;
  Program program;
  std::vector<TensorSpec> arguments;
  std::vector<TensorSpec> parameters;
  std::vector<TensorSpec> buffers;
  Schedule schedule;
};

/// Numbers that don't touch the default generator.
class Data {
 public:
  explicit Data(uint64_t seed)
      : generator_(at::make_generator<at::CPUGeneratorImpl>(seed)) {}

  Tensor normal(at::IntArrayRef sizes, torch::Dtype dtype) {
    const auto drawn = c10::isComplexType(dtype) ? dtype : torch::kFloat;
    return torch::randn(sizes, generator_, drawn).to(dtype);
  }

  Tensor values(at::IntArrayRef sizes, torch::Dtype dtype) {
    if (dtype == torch::kBool) {
      return torch::randint(0, 2, sizes, generator_, torch::kLong).to(dtype);
    }
    if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
      return torch::randint(-5, 20, sizes, generator_, torch::kLong).to(dtype);
    }
    return normal(sizes, dtype);
  }

  /// `made` are the tensors that `spec` may refer to.
  Tensor make(const TensorSpec& spec, int64_t batch, const Tensors& made) {
    if (spec.same_as >= 0) {
      return made[static_cast<size_t>(spec.same_as)];
    }
    if (spec.view_of >= 0) {
      return made[static_cast<size_t>(spec.view_of)].slice(0, 1);
    }
    std::vector<int64_t> sizes = spec.sizes;
    std::replace(sizes.begin(), sizes.end(), kBatch, batch);
    Tensor result;
    switch (spec.layout) {
      case TensorSpec::Layout::kDense:
        result = values(sizes, spec.dtype);
        break;
      case TensorSpec::Layout::kTransposed:
        std::reverse(sizes.begin(), sizes.end());
        result = values(sizes, spec.dtype).permute([&] {
          std::vector<int64_t> order;
          for (size_t i = sizes.size(); i-- > 0;) {
            order.push_back(static_cast<int64_t>(i));
          }
          return order;
        }());
        break;
      case TensorSpec::Layout::kSlice:
        sizes[0] += 2;
        result = values(sizes, spec.dtype).slice(0, 1, sizes[0] - 1);
        break;
      case TensorSpec::Layout::kExpanded:
        result =
            values(at::IntArrayRef(sizes).slice(1), spec.dtype).expand(sizes);
        break;
    }
    if (spec.requires_grad) {
      result.requires_grad_();
    }
    return result;
  }

 private:
  at::Generator generator_;
};

inline std::string text(const TensorSpec& spec) {
  std::ostringstream out;
  if (spec.same_as >= 0) {
    out << "the same tensor as the " << spec.same_as << "th";
    return out.str();
  }
  if (spec.view_of >= 0) {
    out << "slice(0, 1) of the " << spec.view_of << "th";
    return out.str();
  }
  out << spec.dtype << " [";
  for (size_t i = 0; i < spec.sizes.size(); ++i) {
    out << (i == 0 ? "" : ", ");
    if (spec.sizes[i] == kBatch) {
      out << "batch";
    } else {
      out << spec.sizes[i];
    }
  }
  constexpr const char* kLayouts[] = {"", " transposed", " slice", " expanded"};
  out << ']' << kLayouts[static_cast<size_t>(spec.layout)]
      << (spec.requires_grad ? " requires_grad" : "")
      << (spec.leaf ? "" : " with a history");
  return out.str();
}

inline std::string text(const Case& fuzz) {
  std::ostringstream out;
  int number = 0;
  const auto list = [&](const char* role, const std::vector<TensorSpec>& all) {
    for (const TensorSpec& spec : all) {
      out << "  " << role << " %" << number++ << ": " << text(spec) << '\n';
    }
  };
  list("argument", fuzz.arguments);
  list("parameter", fuzz.parameters);
  list("buffer", fuzz.buffers);
  out << text(fuzz.program);
  const Schedule& s = fuzz.schedule;
  constexpr const char* kWrappers[] = {
      "temper::Module", "compile(torch::nn::Module)", "compile(function)"};
  constexpr const char* kBackwards[] = {
      "no backward",
      "backward",
      "autograd::grad",
      "backward(retain_graph) twice",
      "double backward"};
  out << "  as " << kWrappers[static_cast<size_t>(s.wrapper)] << ", "
      << kBackwards[static_cast<size_t>(s.backward)];
  if (s.backward != Schedule::Backward::kNone) {
    out << " of outputs 0b";
    for (size_t i = std::min<size_t>(fuzz.program.outputs.size(), 32);
         i-- > 0;) {
      out << ((s.roots >> i) & 1U);
    }
    constexpr const char* kLayouts[] = {"dense", "expanded", "transposed"};
    constexpr const char* kZero[] = {"accumulate", "set to none", "set to 0"};
    out << (s.varying_roots ? " (varying)" : "") << ", " << kLayouts[s.layout]
        << " grad_outputs, gradients " << kZero[s.zero_grad]
        << (s.step ? ", SGD steps" : "");
  }
  out << (s.write_outputs ? ", results written" : "") << '\n';
  for (size_t i = 0; i < s.calls.size(); ++i) {
    const CallSpec& call = s.calls[i];
    out << "  call " << i << ": batch " << call.batch << ", factor "
        << call.factor << (call.training ? "" : ", eval")
        << (call.grad ? "" : ", no_grad")
        << (call.freeze ? ", first parameter frozen" : "") << '\n';
  }
  return out.str();
}

} // namespace temper::fuzz
