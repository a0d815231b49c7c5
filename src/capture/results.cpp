// Planning a call's results.
#include "capture/results.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <unordered_set>
#include <utility>

#include "capture/raw_op.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::ValueId;
using torch::autograd::Node;

// What made the tensor; null for leaves. Of a view whose base was written since
// it is the node before that, which others have edges to.
Node* own_node(const at::Tensor& tensor) {
  const auto* meta = tensor.defined()
      ? torch::autograd::impl::get_autograd_meta(tensor)
      : nullptr;
  return meta == nullptr ? nullptr : meta->grad_fn_.get();
}

struct Producer {
  int32_t op = -1;
  int32_t result = -1;
};

std::vector<Producer> producers(const graph::Graph& graph) {
  std::vector<Producer> made(graph.values.size());
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto& results = graph.ops[i].results;
    for (size_t k = 0; k < results.size(); ++k) {
      if (results[k] == kNoValue) {
        continue;
      }
      auto& entry = made[static_cast<size_t>(results[k])];
      if (entry.op < 0) {
        entry = {static_cast<int32_t>(i), static_cast<int32_t>(k)};
      }
    }
  }
  return made;
}

// The graph input that defines `value`, or -1.
int32_t input_of(const graph::Graph& graph, ValueId value) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].value == value) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

// View ops that lead to `value`, first one first, from `root` or, if that is
// kNoValue, from the first graph input met (returned in `root`).
bool find_chain(
    const Trace& trace,
    const std::vector<Producer>& made,
    ValueId value,
    ValueId& root,
    std::vector<ResultPlan::Step>& chain) {
  for (;;) {
    if (root == kNoValue ? input_of(trace.graph, value) >= 0 : value == root) {
      root = value;
      std::reverse(chain.begin(), chain.end());
      return true;
    }
    const auto& producer = made[static_cast<size_t>(value)];
    if (producer.op < 0) {
      return false;
    }
    const auto& record = trace.ops[static_cast<size_t>(producer.op)];
    if (!record.view && !record.rebinds) {
      return false;
    }
    chain.push_back({producer.op, producer.result, record.grad_mode});
    const auto& op = trace.graph.ops[static_cast<size_t>(producer.op)];
    value = kNoValue;
    for (const auto& operand : op.operands) {
      if (operand.kind == graph::Operand::Kind::kValue) {
        value = operand.value;
        break;
      }
    }
    if (value == kNoValue) {
      return false;
    }
  }
}

// Where the nodes that the call made, as far as gradients of results reach
// them, send gradients.
std::set<std::pair<Node*, uint32_t>> inner_edges(
    const std::vector<at::Tensor>& results,
    uint64_t first_sequence_number) {
  std::set<std::pair<Node*, uint32_t>> edges;
  std::unordered_set<Node*> seen;
  std::vector<Node*> stack(results.size());
  std::transform(results.begin(), results.end(), stack.begin(), own_node);
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (node == nullptr || node->sequence_nr() < first_sequence_number ||
        !seen.insert(node).second) {
      continue;
    }
    for (const auto& edge : node->next_edges()) {
      edges.emplace(edge.function.get(), edge.input_nr);
      stack.push_back(edge.function.get());
    }
  }
  return edges;
}

// True iff taking the chain of views again gives a tensor with the autograd
// metadata of the result (a write or requires_grad_() may have changed them).
bool retakes(
    const Trace& trace,
    const ResultPlan& plan,
    const at::Tensor& input,
    const at::Tensor& result) {
  const auto again = apply_views(trace.graph, plan.chain, input);
  return again.requires_grad() == result.requires_grad() &&
      again.is_leaf() == result.is_leaf() &&
      again.is_view() == result.is_view();
}

} // namespace

at::Tensor apply_views(
    const graph::Graph& graph,
    const std::vector<ResultPlan::Step>& chain,
    at::Tensor tensor) {
  for (const auto& step : chain) {
    // As in the call: in-place on a view that was made in no_grad mode raises.
    const c10::AutoGradMode mode(step.grad_mode);
    const auto& op = graph.ops[static_cast<size_t>(step.op)];
    // All operands of a view are the tensor that it looks at.
    auto results = call_raw_op(
        graph, op, [&](ValueId) -> const at::Tensor& { return tensor; });
    tensor = std::move(results[static_cast<size_t>(step.result)]);
  }
  return tensor;
}

std::vector<ResultPlan> plan_results(
    Recorder& recorder,
    const std::vector<at::Tensor>& results,
    const std::vector<at::Tensor>& arguments,
    size_t rewritten) {
  auto& trace = recorder.trace();
  auto& graph = trace.graph;
  graph.num_forward_ops = static_cast<int32_t>(graph.ops.size());
  recorder.end_call(results);
  std::vector<ResultPlan> plans(results.size());
  const auto output_of = [&](ValueId value) {
    const auto it =
        std::find(graph.outputs.begin(), graph.outputs.end(), value);
    if (it != graph.outputs.end()) {
      return static_cast<int32_t>(it - graph.outputs.begin());
    }
    graph.outputs.push_back(value);
    return static_cast<int32_t>(graph.outputs.size()) - 1;
  };
  std::vector<ValueId> values(results.size(), kNoValue);
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].defined()) {
      values[i] = recorder.resolve(results[i]);
      if (values[i] == kNoValue) {
        recorder.fail("a result was not made by an op of this call");
        return plans;
      }
    }
  }
  const auto made = producers(graph);
  const auto edges = inner_edges(results, recorder.first_sequence_number());
  for (size_t i = 0; i < results.size(); ++i) {
    const auto& result = results[i];
    auto& plan = plans[i];
    if (!result.defined()) {
      continue;
    }
    plan.requires_grad = result.requires_grad();
    // A view that is taken again outside of the program is not the tensor of
    // which the program computed the rest: its hooks would miss the gradients
    // that come from there.
    const bool is_inside = plan.requires_grad && result.is_view() &&
        edges.contains({own_node(result), result.output_nr()});
    if (i + rewritten >= results.size()) {
      plan.kind = ResultPlan::Kind::kOutput;
      plan.index = output_of(values[i]);
      continue;
    }
    const auto same = std::find_if(
        results.begin(),
        results.begin() + static_cast<ptrdiff_t>(i),
        [&](const at::Tensor& earlier) { return earlier.is_same(result); });
    if (same != results.begin() + static_cast<ptrdiff_t>(i)) {
      plan.kind = ResultPlan::Kind::kSame;
      plan.index = static_cast<int32_t>(same - results.begin());
      continue;
    }
    const auto storage = trace.values[static_cast<size_t>(values[i])].storage;
    const auto& storage_info = trace.storages[static_cast<size_t>(storage)];
    if (storage_info.input >= 0) {
      ValueId root = kNoValue;
      if (!find_chain(trace, made, values[i], root, plan.chain)) {
        recorder.fail("a result is a view of an input that can't be retaken");
        return plans;
      }
      plan.kind = ResultPlan::Kind::kInput;
      plan.index = input_of(graph, root);
      if (plan.chain.empty()) {
        const auto& binding = trace.bindings[static_cast<size_t>(plan.index)];
        const bool is_it = binding.argument >= 0
            ? arguments[static_cast<size_t>(binding.argument)].is_same(result)
            : binding.watched == result.unsafeGetTensorImpl();
        if (!is_it) {
          recorder.fail("a result is a shallow copy of an input");
          return plans;
        }
      } else if (is_inside) {
        recorder.fail(
            "a result is a view of an input, and something else is computed "
            "from it");
        return plans;
      } else if (!retakes(
                     trace,
                     plan,
                     trace.bindings[static_cast<size_t>(plan.index)].tensor(
                         arguments),
                     result)) {
        recorder.fail("a result is a view of an input with another history");
        return plans;
      }
      continue;
    }
    if (recorder.is_uninitialised(values[i]) && result.numel() > 0) {
      recorder.fail(kRawAccess); // Filled by pointer, or not at all.
      return plans;
    }
    plan.kind = ResultPlan::Kind::kOutput;
    plan.version = result.is_inference() ? 0 : result._version();
    ValueId root = values[i];
    const bool shares =
        std::count_if(values.begin(), values.end(), [&](ValueId value) {
          return value != kNoValue &&
              trace.values[static_cast<size_t>(value)].storage == storage;
        }) > 1;
    if (is_inside && at::has_internal_overlap(result) == at::MemOverlap::Yes) {
      // Autograd could not follow a write to a part of it.
      recorder.fail(
          "a result is an expanded view, and something else is computed from "
          "it");
      return plans;
    }
    if (is_inside && shares) {
      recorder.fail(
          "a result is a view of another's memory, and something else is "
          "computed from it");
      return plans;
    }
    if ((plan.requires_grad || shares) && result.is_view() && !is_inside) {
      // A view of an intermediate that autograd follows, or that the user can
      // see to be one: the program gives the base, the views are taken above
      // autograd.
      const auto base = recorder.resolve(at::Tensor(result._base()));
      root = base;
      if (base == kNoValue ||
          !find_chain(trace, made, values[i], root, plan.chain)) {
        plan.chain.clear();
        root = values[i];
      }
    } else if (plan.requires_grad && result.is_leaf()) {
      plan.leaf = true;
    }
    plan.index = output_of(root);
    for (size_t k = 0; k < i; ++k) {
      if (plans[k].kind == ResultPlan::Kind::kOutput && plan.chain.empty() &&
          plans[k].chain.empty() && values[k] == values[i]) {
        recorder.fail(
            "two results are one memory, which autograd does not know (.data())");
        return plans;
      }
      if (plans[k].kind == ResultPlan::Kind::kOutput && plan.chain.empty() &&
          trace.values[static_cast<size_t>(values[k])].storage == storage) {
        plan.shares_version_with = static_cast<int32_t>(k);
        break;
      }
    }
  }
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const auto storage =
        trace.values[static_cast<size_t>(graph.inputs[i].value)].storage;
    if (trace.storages[static_cast<size_t>(storage)].written) {
      graph.mutations.push_back({static_cast<int32_t>(i), kNoValue, false});
    }
  }
  return plans;
}

} // namespace temper::capture
