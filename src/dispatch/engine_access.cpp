// Access to the engine's task. Its type is in LibTorch's headers and the build
// pins LibTorch's minor version, but there is no function that returns it: it
// is found by the address of a member that one does return.
#include "dispatch/engine_access.h"

#include <torch/csrc/autograd/node.h>

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "base/error.h"
#include "capture/autograd_region.h"

namespace temper::dispatch {

namespace autograd = torch::autograd;
using autograd::GraphTask;
using autograd::Node;

GraphTask* current_graph_task() {
  const auto* nodes = autograd::get_current_graph_task_nodes_in_graph();
  if (nodes == nullptr) {
    return nullptr;
  }
#pragma GCC diagnostic push
  // The type has no virtual bases; GCC and clang lay it out statically.
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
  constexpr size_t kOffset = offsetof(GraphTask, nodes_in_graph_);
#pragma GCC diagnostic pop
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  const auto address = reinterpret_cast<uintptr_t>(nodes) - kOffset;
  // NOLINTNEXTLINE
  auto* task = reinterpret_cast<GraphTask*>(address);
  TEMPER_INTERNAL(
      static_cast<int>(task->id_) == autograd::get_current_graph_task_id() &&
          &task->exec_info_ == autograd::get_current_graph_task_exec_info(),
      "another LibTorch than the one that temper was built for");
  return task;
}

bool remove_edge(GraphTask& task, Node* target, std::vector<Node*>& waiting) {
  const std::scoped_lock lock(task.mutex_);
  std::unordered_map<Node*, int> removed;
  std::vector<Node*> stack{target};
  std::vector<Node*> ready;
  if (!capture::will_visit(target)) {
    return false;
  }
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    if (!capture::will_visit(node)) {
      continue;
    }
    const auto pending = task.dependencies_.find(node);
    if (pending == task.dependencies_.end()) {
      return false;
    }
    if (++removed[node] < pending->second) {
      continue;
    }
    if (task.not_ready_.find(node) != task.not_ready_.end()) {
      if (node == target) {
        return false;
      }
      --removed[node]; // Stays open for what the caller sends.
      ready.push_back(node);
      continue;
    }
    for (const auto& edge : node->next_edges()) {
      if (edge.is_valid()) {
        stack.push_back(edge.function.get());
      }
    }
  }
  for (const auto& [node, count] : removed) {
    const auto pending = task.dependencies_.find(node);
    pending->second -= count;
    if (pending->second == 0) {
      task.dependencies_.erase(pending);
    }
  }
  waiting.insert(waiting.end(), ready.begin(), ready.end());
  return true;
}

int pending_edges(GraphTask& task, Node* node) {
  const std::scoped_lock lock(task.mutex_);
  const auto pending = task.dependencies_.find(node);
  return pending == task.dependencies_.end() ? 0 : pending->second;
}

bool has_gradient(GraphTask& task, Node* node, uint32_t input) {
  const std::scoped_lock lock(task.mutex_);
  const auto waiting = task.not_ready_.find(node);
  return waiting != task.not_ready_.end() && waiting->second[input].defined();
}

} // namespace temper::dispatch
