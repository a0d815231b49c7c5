// Joint traces. Two calls of one signature record the same forward with the
// same numbers for values, storages and slots; what their backwards add gets
// new ones when it moves from one trace to another.
#include "capture/joint.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "graph/equal.h"

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::ValueId;

// Moves what one backward added.
class Mover {
 public:
  Mover(Trace& into, const Trace& from)
      : into_(into),
        from_(from),
        values_(from.values.size(), kNoValue),
        storages_(from.storages.size(), -1) {}

  bool move(const RecordedBackward& backward) {
    const auto& segments = from_.graph.segments;
    const auto first = static_cast<size_t>(backward.step_segments.front());
    const auto end = static_cast<size_t>(backward.step_segments.back());
    const int32_t number = into_.graph.segments.empty()
        ? 0
        : into_.graph.segments.back().backward + 1;
    for (size_t s = first; s < end && sound_; ++s) {
      graph::Segment segment = segments[s];
      segment.backward = number;
      for (auto& tangent : segment.tangents) {
        tangent = add_tangent(tangent);
      }
      segment.first_op = static_cast<int32_t>(into_.graph.ops.size());
      for (int32_t i = segments[s].first_op; i < segments[s].end_op; ++i) {
        add_op(static_cast<size_t>(i));
      }
      segment.end_op = static_cast<int32_t>(into_.graph.ops.size());
      for (auto& delivery : segment.deliveries) {
        delivery.value = value(delivery.value);
        if (delivery.target == graph::Delivery::Target::kInput) {
          delivery.index = input(delivery.index);
        }
      }
      into_.graph.segments.push_back(std::move(segment));
    }
    return sound_;
  }

 private:
  // An id of `from` in `into`.
  ValueId value(ValueId id) {
    if (id == kNoValue || static_cast<size_t>(id) < from_.forward.values) {
      return id;
    }
    auto& moved = values_[static_cast<size_t>(id)];
    if (moved == kNoValue) {
      // An input that only this backward reads; or another backward's.
      const auto& inputs = from_.graph.inputs;
      for (size_t i = from_.forward.inputs; i < inputs.size(); ++i) {
        if (inputs[i].value == id && inputs[i].role != graph::Role::kTangent) {
          return into_.graph
              .inputs[static_cast<size_t>(input(static_cast<int32_t>(i)))]
              .value;
        }
      }
      sound_ = false;
    }
    return moved;
  }

  int32_t slot(int32_t index) {
    if (static_cast<size_t>(index) < from_.forward.slots) {
      return index;
    }
    // Each slot has one place that uses it.
    into_.graph.slots.push_back(from_.graph.slots[static_cast<size_t>(index)]);
    return static_cast<int32_t>(into_.graph.slots.size()) - 1;
  }

  int32_t storage(int32_t index, int32_t new_input) {
    if (static_cast<size_t>(index) < from_.forward.storages) {
      return index;
    }
    auto& moved = storages_[static_cast<size_t>(index)];
    if (moved < 0) {
      moved = static_cast<int32_t>(into_.storages.size());
      into_.storages.push_back(from_.storages[static_cast<size_t>(index)]);
      into_.storages.back().input = new_input;
    }
    return moved;
  }

  ValueId add_value(ValueId id, int32_t new_input) {
    const auto at = static_cast<size_t>(id);
    graph::Value copy = from_.graph.values[at];
    ValueInfo info = from_.values[at];
    info.storage = copy.storage = storage(info.storage, new_input);
    for (auto& dim : copy.type.sizes) {
      if (dim.kind == graph::Dim::Kind::kSlot) {
        dim.slot = slot(dim.slot);
      }
    }
    into_.graph.values.push_back(std::move(copy));
    into_.values.push_back(info);
    return values_[at] = static_cast<ValueId>(into_.values.size()) - 1;
  }

  int32_t add_input(int32_t index) {
    const auto at = static_cast<size_t>(index);
    const auto added = static_cast<int32_t>(into_.graph.inputs.size());
    graph::Input copy = from_.graph.inputs[at];
    copy.value = add_value(copy.value, added);
    into_.graph.inputs.push_back(std::move(copy));
    into_.bindings.push_back(from_.bindings[at]);
    return added;
  }

  int32_t input(int32_t index) {
    const auto at = static_cast<size_t>(index);
    if (at < from_.forward.inputs) {
      return index;
    }
    const auto& wanted = from_.bindings[at];
    for (size_t i = into_.forward.inputs; i < into_.bindings.size(); ++i) {
      if (into_.graph.inputs[i].role != graph::Role::kTangent &&
          into_.bindings[i].argument == wanted.argument &&
          into_.bindings[i].watched == wanted.watched) {
        const auto here = static_cast<size_t>(from_.graph.inputs[at].value);
        const auto there = into_.graph.inputs[i].value;
        values_[here] = there;
        const auto storage =
            static_cast<size_t>(from_.graph.values[here].storage);
        if (storage >= from_.forward.storages) {
          // What is seen of it is seen of the same memory.
          storages_[storage] =
              into_.graph.values[static_cast<size_t>(there)].storage;
        }
        return static_cast<int32_t>(i);
      }
    }
    return add_input(index);
  }

  int32_t add_tangent(int32_t index) {
    size_t ordinal = 0;
    for (size_t i = 0; i < static_cast<size_t>(index); ++i) {
      ordinal += from_.graph.inputs[i].role == graph::Role::kTangent ? 1 : 0;
    }
    into_.graph.tangent_outputs.push_back(from_.graph.tangent_outputs[ordinal]);
    return add_input(index);
  }

  void add_op(size_t index) {
    graph::Op copy = from_.graph.ops[index];
    for (auto& operand : copy.operands) {
      using Kind = graph::Operand::Kind;
      if (operand.kind == Kind::kValue) {
        operand.value = value(operand.value);
      }
      for (auto& id : operand.values) {
        id = value(id);
      }
      if (operand.kind == Kind::kSlot || operand.kind == Kind::kSlotList) {
        for (auto& each : operand.slots) {
          each = slot(each);
        }
      } else if (operand.kind == Kind::kObject) {
        auto& object = operand.slots[0];
        if (static_cast<size_t>(object) >= from_.forward.objects) {
          const auto at = static_cast<size_t>(object);
          object = static_cast<int32_t>(into_.objects.size());
          into_.graph.objects.push_back(from_.graph.objects[at]);
          into_.objects.push_back(from_.objects[at]);
        }
      }
    }
    for (const auto& write : copy.writes) {
      const auto& operand = copy.operands[static_cast<size_t>(write.operand)];
      const auto id = write.element < 0
          ? operand.value
          : operand.values[static_cast<size_t>(write.element)];
      // Each backward must find the forward's memory as the forward left it.
      sound_ = sound_ && id != kNoValue &&
          static_cast<size_t>(into_.values[static_cast<size_t>(id)].storage) >=
              into_.forward.storages;
    }
    for (auto& id : copy.results) {
      if (id == kNoValue || static_cast<size_t>(id) < from_.forward.values) {
        continue;
      }
      auto& moved = values_[static_cast<size_t>(id)];
      id = moved == kNoValue ? add_value(id, -1) : moved;
    }
    into_.graph.ops.push_back(std::move(copy));
    into_.ops.push_back(from_.ops[index]);
    into_.rng = into_.rng || from_.ops[index].info->rng;
  }

  Trace& into_;
  const Trace& from_;
  std::vector<ValueId> values_; ///< Of `from`, in `into`.
  std::vector<int32_t> storages_;
  bool sound_ = true;
};

} // namespace

bool GradientLayout::is_of(const at::Tensor& gradient) const {
  return gradient.layout() == c10::kStrided &&
      gradient.strides() == at::IntArrayRef(strides_);
}

at::Tensor GradientLayout::applied(const at::Tensor& gradient) const {
  if (is_of(gradient)) {
    return gradient;
  }
  const at::NoGradGuard no_grad;
  const auto dense =
      gradient.layout() == c10::kStrided ? gradient : gradient.to_dense();
  return at::empty_strided(dense.sizes(), strides_, dense.options())
      .copy_(dense);
}

void resolve(at::Tensor& gradient) {
  if (gradient.defined() && (gradient.is_conj() || gradient.is_neg())) {
    const at::NoGradGuard no_grad;
    gradient = gradient.resolve_conj().resolve_neg();
  }
}

int64_t autocast_state() {
  return at::autocast::is_autocast_enabled(c10::kCPU)
      ? 1 + static_cast<int64_t>(at::autocast::get_autocast_dtype(c10::kCPU))
      : 0;
}

void end_forward(Trace& trace) {
  const auto& graph = trace.graph;
  trace.forward = {
      graph.values.size(),
      trace.storages.size(),
      graph.inputs.size(),
      graph.objects.size(),
      graph.slots.size()};
}

Trace forward_part(const Trace& trace) {
  Trace result = trace;
  auto& graph = result.graph;
  const auto ops = static_cast<size_t>(graph.num_forward_ops);
  graph.values.resize(trace.forward.values);
  graph.inputs.resize(trace.forward.inputs);
  graph.objects.resize(trace.forward.objects);
  graph.slots.resize(trace.forward.slots);
  graph.ops.erase(
      graph.ops.begin() + static_cast<ptrdiff_t>(ops), graph.ops.end());
  graph.segments.clear();
  graph.tangent_outputs.clear();
  result.values.resize(trace.forward.values);
  result.storages.resize(trace.forward.storages);
  result.ops.resize(ops);
  result.bindings.resize(trace.forward.inputs);
  result.objects.resize(trace.forward.objects);
  return result;
}

bool same_forward(const Trace& a, const Trace& b) {
  if (a.bindings.size() < a.forward.inputs ||
      a.forward.inputs != b.forward.inputs) {
    return false;
  }
  for (size_t i = 0; i < a.forward.inputs; ++i) {
    if (a.bindings[i].argument != b.bindings[i].argument ||
        a.bindings[i].watched != b.bindings[i].watched) {
      return false;
    }
  }
  return graph::equal(forward_part(a).graph, forward_part(b).graph);
}

bool append_backward(
    Trace& into,
    const Trace& from,
    RecordedBackward& backward) {
  Trace longer = into;
  const auto shift = static_cast<int32_t>(into.graph.segments.size()) -
      backward.step_segments.front();
  if (!Mover(longer, from).move(backward)) {
    return false;
  }
  for (auto& segment : backward.step_segments) {
    segment += shift;
  }
  into = std::move(longer);
  return true;
}

} // namespace temper::capture
