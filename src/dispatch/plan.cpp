// Running a plan.
#include "dispatch/plan.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "dispatch/compiled_backward.h"
#include "runtime/executor.h"

namespace temper::dispatch {

bool Plan::is_reader(size_t node) const {
  return std::any_of(
      backwards.begin(), backwards.end(), [&](const auto& backward) {
        return backward.readers[node];
      });
}

bool Plan::is_visited(size_t node) const {
  return std::any_of(
      backwards.begin(), backwards.end(), [&](const auto& backward) {
        return backward.visited[node];
      });
}

bool Plan::is_rewritten(int32_t input) const {
  const auto argument = trace->bindings[static_cast<size_t>(input)].argument;
  return argument >= 0 &&
      std::find(rewritten.begin(), rewritten.end(), argument) !=
      rewritten.end();
}

at::Tensor input_tensor(
    const Plan& plan,
    int32_t input,
    const std::vector<at::Tensor>& arguments) {
  return plan.trace->bindings[static_cast<size_t>(input)].tensor(arguments);
}

namespace {

// Gives the nodes of a view's steps the numbers before `end`.
void make_late(const at::Tensor& view, size_t steps, const uint64_t* end) {
  auto node = view.grad_fn();
  for (size_t step = 0; step < steps && node; ++step) {
    node->set_sequence_nr(*--end);
    const auto& edges = node->next_edges();
    node = edges.empty() ? nullptr : edges[0].function;
  }
}

// Counts up to `version`: tensors may share a counter.
void raise_version(const at::Tensor& tensor, int64_t version) {
  while (tensor._version() < version) {
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

} // namespace

capture::OldContents contents_of_mutated(
    const Plan& plan,
    const std::vector<at::Tensor>& arguments) {
  capture::OldContents contents;
  for (const auto input : plan.mutated) {
    contents.keep(input_tensor(plan, input, arguments));
  }
  return contents;
}

bool runs_hooks(
    const capture::Trace& trace,
    const std::vector<at::Tensor>& arguments) {
  if (!trace.inner_gradients) {
    return false;
  }
  return std::any_of(
      trace.bindings.begin(),
      trace.bindings.end(),
      [&](const capture::Binding& binding) {
        if (binding.argument < 0 && binding.watched == nullptr) {
          return false;
        }
        const auto tensor = binding.tensor(arguments);
        const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
        if (meta == nullptr) {
          return false;
        }
        if (meta->retains_grad_) {
          return true;
        }
        const auto& hooks = meta->cpp_hooks_list_;
        return hooks != nullptr &&
            std::any_of(hooks->begin(), hooks->end(), [](const auto& hook) {
                 return hook != nullptr; // Removed ones are.
               });
      });
}

std::optional<std::vector<at::Tensor>> run_plan(
    const std::shared_ptr<const Plan>& plan_pointer,
    const std::vector<at::Tensor>& arguments,
    c10::function_ref<BackwardFallback()> make_fallback) {
  const auto& plan = *plan_pointer;
  using Kind = capture::ResultPlan::Kind;
  std::vector<at::Tensor> inputs;
  // Where the program's own values will lie, too.
  inputs.reserve(static_cast<size_t>(plan.artifact->forward->num_registers));
  for (const auto input : plan.forward_inputs) {
    inputs.push_back(input_tensor(plan, input, arguments));
  }
  c10::SmallVector<std::pair<at::Tensor, int64_t>, 4> versions;
  for (const auto input : plan.versioned) {
    auto tensor = input_tensor(plan, input, arguments);
    const auto steps =
        plan.trace->bindings[static_cast<size_t>(input)].version_steps;
    if (!tensor.is_inference()) {
      const auto version = tensor._version() + steps;
      versions.emplace_back(std::move(tensor), version);
    }
  }
  BackwardFallback fallback;
  if (plan.differentiable) {
    // Before the program draws random numbers: a re-run begins here.
    fallback = make_fallback();
    const at::AutoDispatchBelowADInplaceOrView below;
    for (const auto input : plan.changed_for_a_rerun) {
      fallback.old_contents.push_back(
          input_tensor(plan, input, arguments).clone());
    }
  }
  std::vector<at::Tensor> outputs;
  {
    // Also if an operator throws: inputs may have been written by then.
    const auto count_versions = c10::make_scope_exit([&] {
      for (const auto& [tensor, version] : versions) {
        raise_version(tensor, version);
      }
    });
    // Only where the code switches it: the guard sets the grad mode, too.
    std::optional<c10::InferenceMode> mode;
    if (plan.inference != c10::InferenceMode::is_enabled()) {
      mode.emplace(plan.inference);
    }
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(
        c10::autocast_dispatch_keyset);
    try {
      outputs = runtime::run(
          *plan.artifact->forward,
          std::move(inputs),
          plan.slots.data(),
          plan.trace->objects.data());
    } catch (const InternalError&) {
      throw;
    } catch (const std::exception&) {
      if (!plan.can_rerun) {
        throw;
      }
      return std::nullopt;
    }
  }
  const auto num_outputs = static_cast<ptrdiff_t>(plan.artifact->num_outputs);
  std::vector<at::Tensor> private_values(
      std::make_move_iterator(outputs.begin() + num_outputs),
      std::make_move_iterator(outputs.end()));
  outputs.resize(static_cast<size_t>(num_outputs));
  for (size_t k = 0; k < plan.rewritten.size(); ++k) {
    const auto& result =
        plan.results[plan.results.size() - plan.rewritten.size() + k];
    outputs[static_cast<size_t>(result.index)] =
        arguments[static_cast<size_t>(plan.rewritten[k])];
  }
  for (const auto& result : plan.results) {
    if (result.version > 0) {
      raise_version(outputs[static_cast<size_t>(result.index)], result.version);
    }
  }
  // Before the backward notes the versions of what it saves.
  for (const auto& result : plan.results) {
    if (result.kind != Kind::kOutput || result.shares_version_with < 0) {
      continue;
    }
    const auto& other =
        plan.results[static_cast<size_t>(result.shares_version_with)];
    auto& output = outputs[static_cast<size_t>(result.index)];
    if (!output.is_inference()) {
      output.unsafeGetTensorImpl()->set_version_counter(
          outputs[static_cast<size_t>(other.index)]
              .unsafeGetTensorImpl()
              ->version_counter());
    }
  }
  // Numbers for what the engine is to take after the nodes of the chain.
  std::vector<uint64_t> late_numbers;
  if (plan.differentiable) {
    for (const auto& result : plan.results) {
      for (size_t i = 0; result.late && i < result.chain.size(); ++i) {
        late_numbers.push_back(at::sequence_number::get_and_increment());
      }
    }
    attach_backward(
        plan_pointer,
        arguments,
        outputs,
        std::move(private_values),
        std::move(fallback));
  }
  std::vector<at::Tensor> results(plan.results.size());
  size_t next_late = 0;
  // Views first, in the order in which the call took them.
  for (const auto i : plan.views) {
    const auto& result = plan.results[i];
    results[i] = capture::apply_views(
        plan.trace->graph,
        result.chain,
        result.kind == Kind::kInput
            ? input_tensor(plan, result.index, arguments)
            : outputs[static_cast<size_t>(result.index)]);
    if (result.late) {
      next_late += result.chain.size();
      make_late(
          results[i], result.chain.size(), late_numbers.data() + next_late);
    }
  }
  for (size_t i = 0; i < plan.results.size(); ++i) {
    const auto& result = plan.results[i];
    switch (result.kind) {
      case Kind::kUndefined:
        break;
      case Kind::kSame:
        results[i] = results[static_cast<size_t>(result.index)];
        break;
      case Kind::kInput:
        if (result.chain.empty()) {
          results[i] = input_tensor(plan, result.index, arguments);
        }
        break;
      case Kind::kOutput: {
        if (result.chain.empty()) {
          results[i] = outputs[static_cast<size_t>(result.index)];
        }
        if (result.leaf) {
          results[i].set_requires_grad(true);
        }
        break;
      }
    }
  }
  results.resize(results.size() - plan.rewritten.size());
  return results;
}

} // namespace temper::dispatch
