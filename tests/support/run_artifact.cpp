// Running and comparing artifacts.
#include "support/run_artifact.h"

#include <torch/torch.h>

#include <algorithm>

#include "codegen/compile_aten.h"
#include "graph/build.h"
#include "graph/printer.h"
#include "graph/skeleton.h"
#include "program/print.h"
#include "runtime/executor.h"

namespace temper::support {

using graph::Graph;
using graph::Role;

RunResult run_artifact(
    const runtime::Artifact& artifact,
    const Graph& raw,
    const std::vector<at::Tensor>& inputs,
    const std::vector<c10::IValue>& slots,
    const std::vector<c10::IValue>& objects) {
  RunResult result;
  std::vector<at::Tensor> forward_inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (raw.inputs[i].role != Role::kTangent) {
      forward_inputs.push_back(inputs[i]);
    }
  }
  std::vector<at::Tensor> outputs = runtime::run(
      *artifact.forward, forward_inputs, slots.data(), objects.data());
  auto next = static_cast<size_t>(artifact.num_outputs);
  for (const graph::Mutation& mutation : raw.mutations) {
    if (mutation.as_output) {
      const at::AutoDispatchBelowADInplaceOrView below;
      const at::Tensor& input = inputs[static_cast<size_t>(mutation.input)];
      input.copy_(outputs.at(next++));
      for (size_t i = 0; i < raw.outputs.size(); ++i) {
        if (raw.outputs[i] ==
            raw.inputs[static_cast<size_t>(mutation.input)].value) {
          outputs[i] = input;
        }
      }
    }
  }
  std::vector<at::Tensor> saved;
  for (const runtime::Saved& each : artifact.saved) {
    const auto index = static_cast<size_t>(each.index);
    saved.push_back(
        each.kind == runtime::Saved::Kind::kInput ? inputs.at(index)
                                                  : outputs.at(index));
  }
  outputs.resize(static_cast<size_t>(artifact.num_outputs));
  result.outputs = outputs;
  for (const at::Tensor& output : outputs) {
    result.output_contents.push_back(snapshot(output));
  }
  for (const at::Tensor& input : forward_inputs) {
    result.input_contents.push_back(snapshot(input));
  }
  std::vector<at::Tensor> carried(static_cast<size_t>(artifact.num_carried));
  for (size_t s = 0; s < artifact.segments.size(); ++s) {
    const runtime::BackwardProgram& segment = artifact.segments[s];
    std::vector<at::Tensor> args;
    for (const int32_t i : segment.saved) {
      args.push_back(saved.at(static_cast<size_t>(i)));
    }
    for (const int32_t i : raw.segments[s].tangents) {
      args.push_back(inputs.at(static_cast<size_t>(i)));
    }
    for (const int32_t i : segment.carried_in) {
      args.push_back(carried.at(static_cast<size_t>(i)));
    }
    std::vector<at::Tensor> results = runtime::run(
        *segment.program, std::move(args), slots.data(), objects.data());
    const size_t num_deliveries = raw.segments[s].deliveries.size();
    for (size_t c = 0; c < segment.carried_out.size(); ++c) {
      carried.at(static_cast<size_t>(segment.carried_out[c])) =
          results.at(num_deliveries + c);
    }
    results.resize(num_deliveries);
    std::vector<at::Tensor>& contents = result.delivery_contents.emplace_back();
    for (const at::Tensor& each : results) {
      contents.push_back(snapshot(each));
    }
    result.deliveries.push_back(std::move(results));
  }
  return result;
}

namespace {

testing::AssertionResult same_list(
    const char* what,
    const std::vector<at::Tensor>& a,
    const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure()
        << a.size() << " and " << b.size() << " of " << what;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) {
      return testing::AssertionFailure() << what << ' ' << i << " differ:\n"
                                         << a[i] << a[i].strides() << "\n"
                                         << b[i] << b[i].strides();
    }
  }
  return testing::AssertionSuccess();
}

} // namespace

testing::AssertionResult same_results(
    const RunResult& a,
    const std::vector<at::Tensor>& a_inputs,
    const RunResult& b,
    const std::vector<at::Tensor>& b_inputs) {
  auto result = same_list("outputs", a.output_contents, b.output_contents);
  if (result) {
    result = same_list("inputs", a.input_contents, b.input_contents);
  }
  for (size_t s = 0; result && s < a.deliveries.size(); ++s) {
    result = same_list(
        "deliveries", a.delivery_contents[s], b.delivery_contents.at(s));
  }
  if (!result) {
    return result;
  }
  // Outputs are group 0, inputs 1, the deliveries of segment s 2 + s.
  std::vector<at::Tensor> x;
  std::vector<at::Tensor> y;
  std::vector<size_t> groups;
  const auto add = [&](const std::vector<at::Tensor>& from_a,
                       const std::vector<at::Tensor>& from_b,
                       size_t group) {
    x.insert(x.end(), from_a.begin(), from_a.end());
    y.insert(y.end(), from_b.begin(), from_b.end());
    groups.resize(x.size(), group);
  };
  add(a.outputs, b.outputs, 0);
  add(a_inputs, b_inputs, 1);
  const size_t num_forward = x.size();
  for (size_t s = 0; s < a.deliveries.size(); ++s) {
    add(a.deliveries[s], b.deliveries[s], 2 + s);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!x[i].defined() || !x[j].defined()) {
        continue;
      }
      // A value that two segments deliver may be two views of one memory. A
      // tangent that the recorded run wrote to is not the same any more.
      const bool written = groups[j] == 1 && i >= num_forward &&
          a.written_inputs.at(j - a.outputs.size());
      const bool identity = groups[i] == groups[j] ||
          ((groups[i] == 1 || groups[j] == 1) && !written);
      if (identity && x[i].is_same(x[j]) != y[i].is_same(y[j])) {
        return testing::AssertionFailure()
            << "tensors " << j << " and " << i << " of outputs, inputs and "
            << "deliveries are the same object in one run only";
      }
      const bool x_shares = x[i].is_alias_of(x[j]);
      const bool y_shares = y[i].is_alias_of(y[j]);
      if (x_shares != y_shares && i < num_forward) {
        return testing::AssertionFailure()
            << "tensors " << j << " and " << i << " of outputs, then inputs, "
            << "share memory in the " << (x_shares ? "first" : "second")
            << " run only";
      }
      if (x_shares && y_shares &&
          x[i].storage_offset() - x[j].storage_offset() !=
              y[i].storage_offset() - y[j].storage_offset()) {
        return testing::AssertionFailure()
            << "tensors " << j << " and " << i << " overlap differently";
      }
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult compiled_equals_raw(
    const Graph& raw,
    const std::vector<at::Tensor>& inputs,
    const codegen::BackendOptions& options) {
  const auto artifact = codegen::compile_aten(raw, options);
  const std::vector<c10::IValue> slots = graph::skeleton(raw).slots;
  for (int run = 0; run < 2; ++run) {
    const std::vector<at::Tensor> a_inputs = copy_inputs(inputs);
    const std::vector<at::Tensor> b_inputs = copy_inputs(inputs);
    torch::manual_seed(run);
    const RunResult expected = run_raw(raw, a_inputs);
    torch::manual_seed(run);
    const RunResult got = run_artifact(*artifact, raw, b_inputs, slots);
    const auto result = same_results(expected, a_inputs, got, b_inputs);
    if (!result) {
      auto failure = testing::AssertionFailure()
          << "run " << run
          << " (raw first, then compiled): " << result.message() << "\nof "
          << graph::print(raw) << program::print(*artifact->forward);
      for (const runtime::BackwardProgram& segment : artifact->segments) {
        failure << program::print(*segment.program);
      }
      return failure;
    }
  }
  return testing::AssertionSuccess();
}

int count_instructions(
    const program::Program& program,
    const std::string& name) {
  return static_cast<int>(std::count_if(
      program.instructions.begin(),
      program.instructions.end(),
      [&](const program::Instruction& instruction) {
        return graph::op_name(instruction.op) == name;
      }));
}

int count_copies(const program::Program& program) {
  return count_instructions(program, "temper::copy_memory") +
      count_instructions(program, "aten::copy_") +
      count_instructions(program, "aten::clone");
}

} // namespace temper::support
