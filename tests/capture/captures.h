// Captures of plain functions, without call sites.
#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/interceptor.h"
#include "capture/recorder.h"
#include "capture/results.h"
#include "capture/shadow.h"
#include "graph/printer.h"
#include "graph/skeleton.h"
#include "graph/verifier.h"

namespace temper::capture {

using Tensors = std::vector<at::Tensor>;
using Code = std::function<Tensors(const Tensors&)>;

/// Watched tensors by name, as a call site's snapshot would find them.
using Watched = std::vector<std::pair<std::string, at::Tensor>>;

inline FindWatched finder(const Watched& watched) {
  return [watched](const at::Tensor& tensor) -> std::optional<WatchedTensor> {
    for (const auto& [name, each] : watched) {
      if (each.is_same(tensor)) {
        const auto role = each.requires_grad() ? graph::Role::kParameter
                                               : graph::Role::kBuffer;
        return WatchedTensor{each, role, name};
      }
    }
    return std::nullopt;
  };
}

/// A recorded call.
struct Captured {
  std::unique_ptr<Recorder> recorder;
  Tensors results;
  std::vector<ResultPlan> plans;

  Trace& trace() const {
    return recorder->trace();
  }
  const std::string& reason() const {
    return trace().unsupported;
  }
};

inline std::unique_ptr<Recorder> recorder_of(
    const Tensors& arguments,
    const Watched& watched = {}) {
  std::vector<std::string> names;
  for (size_t i = 0; i < arguments.size(); ++i) {
    names.push_back(std::string(1, static_cast<char>('x' + i)));
  }
  return std::make_unique<Recorder>(arguments, names, finder(watched));
}

/// Records one call of `code`, to its end.
inline Captured record(
    const Code& code,
    const Tensors& arguments,
    const Watched& watched = {}) {
  Captured captured{recorder_of(arguments, watched), {}, {}};
  {
    const InterceptScope scope(*captured.recorder);
    captured.results = code(arguments);
  }
  if (!captured.recorder->failed()) {
    captured.plans =
        plan_results(*captured.recorder, captured.results, arguments, 0);
  }
  if (!captured.recorder->failed()) {
    graph::verify(captured.trace().graph);
  }
  return captured;
}

/// "aten::mm relu.out", without "aten::".
inline std::string op_names(const Trace& trace) {
  std::string names;
  for (const auto& op : trace.ops) {
    const auto& name = op.info->name;
    names += names.empty() ? "" : " ";
    names += name.starts_with("aten::") ? name.substr(6) : name;
  }
  return names;
}

/// The names of the graph's inputs, in order.
inline std::string input_names(const Trace& trace) {
  std::string names;
  for (const auto& input : trace.graph.inputs) {
    names += (names.empty() ? "" : " ") + input.name;
  }
  return names;
}

/// Equal sizes, dtypes and bits; undefined equals undefined.
inline testing::AssertionResult same(
    const at::Tensor& expected,
    const at::Tensor& actual) {
  if (!expected.defined() || !actual.defined()) {
    return expected.defined() == actual.defined()
        ? testing::AssertionSuccess()
        : testing::AssertionFailure() << "one of them is undefined";
  }
  if (expected.scalar_type() != actual.scalar_type() ||
      expected.sizes() != actual.sizes()) {
    return testing::AssertionFailure() << "of another type or size";
  }
  const auto a = expected.detach().contiguous();
  const auto b = actual.detach().contiguous();
  if (a.numel() > 0 && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes())) {
    return testing::AssertionFailure() << "expected\n" << a << "\ngot\n" << b;
  }
  return testing::AssertionSuccess();
}

inline testing::AssertionResult same(
    const Tensors& expected,
    const Tensors& actual) {
  if (expected.size() != actual.size()) {
    return testing::AssertionFailure()
        << expected.size() << " tensors, got " << actual.size();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (auto equal = same(expected[i], actual[i]); !equal) {
      return testing::AssertionFailure()
          << "tensor " << i << ": " << equal.message();
    }
  }
  return testing::AssertionSuccess();
}

/// Clones with the same requires_grad, all leaves.
inline Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const auto& tensor : tensors) {
    result.push_back(
        tensor.defined()
            ? tensor.detach().clone().set_requires_grad(tensor.requires_grad())
            : tensor);
  }
  return result;
}

} // namespace temper::capture
