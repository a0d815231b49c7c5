// The canonical numbers of a graph's values, slots and storages.
#include "graph/numbering.h"

#include <algorithm>
#include <utility>

namespace temper::graph {

namespace {

class Numberer {
 public:
  explicit Numberer(const Graph& graph) : graph_(graph) {
    numbers_.values.assign(graph.values.size(), -1);
    numbers_.slots.assign(graph.slots.size(), -1);
    // Storage numbers are arbitrary, but dense enough in practice for a table
    // from the smallest to the largest.
    int32_t first = INT32_MAX;
    int32_t last = -1;
    for (const Value& value : graph.values) {
      if (value.storage >= 0) {
        first = std::min(first, value.storage);
        last = std::max(last, value.storage);
      }
    }
    if (last >= 0) {
      numbers_.first_storage = first;
      numbers_.storages.assign(static_cast<size_t>(last - first) + 1, -1);
    }
  }

  Numbering run() {
    for (const Input& input : graph_.inputs) {
      see_value(input.value);
    }
    for (const Op& op : graph_.ops) {
      for (const Operand& operand : op.operands) {
        see_operand(operand);
      }
      for (const ValueId id : op.results) {
        see_value(id);
      }
      for (const Write& write : op.writes) {
        see_value(write.result);
      }
    }
    // In a sound graph nothing new is left from here on.
    for (const ValueId id : graph_.outputs) {
      see_value(id);
    }
    for (const Mutation& mutation : graph_.mutations) {
      see_value(mutation.value);
    }
    for (const Segment& segment : graph_.segments) {
      for (const Delivery& delivery : segment.deliveries) {
        see_value(delivery.value);
      }
    }
    for (int32_t& slot : numbers_.slots) {
      if (slot < 0) {
        slot = num_slots_++;
      }
    }
    return std::move(numbers_);
  }

 private:
  void see_slot(int32_t slot) {
    int32_t& number = numbers_.slots[static_cast<size_t>(slot)];
    if (number < 0) {
      number = num_slots_++;
    }
  }

  void see_value(ValueId id) {
    if (id < 0 || numbers_.values[static_cast<size_t>(id)] >= 0) {
      return;
    }
    numbers_.values[static_cast<size_t>(id)] = numbers_.num_values++;
    const Value& value = graph_.values[static_cast<size_t>(id)];
    for (const Dim& dim : value.type.sizes) {
      if (dim.kind == Dim::Kind::kSlot) {
        see_slot(dim.slot);
      }
    }
    if (value.storage >= 0) {
      int32_t& number = numbers_.storages[static_cast<size_t>(
          value.storage - numbers_.first_storage)];
      if (number < 0) {
        number = num_storages_++;
      }
    }
  }

  void see_operand(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::kValue:
        see_value(operand.value);
        break;
      case Operand::Kind::kValueList:
        for (const ValueId id : operand.values) {
          see_value(id);
        }
        break;
      case Operand::Kind::kSlot:
      case Operand::Kind::kSlotList:
        for (const int32_t slot : operand.slots) {
          see_slot(slot);
        }
        break;
      case Operand::Kind::kNone:
      case Operand::Kind::kConstant:
      case Operand::Kind::kObject:
        break;
    }
  }

  const Graph& graph_;
  Numbering numbers_;
  int32_t num_slots_ = 0;
  int32_t num_storages_ = 0;
};

} // namespace

Numbering number(const Graph& graph) {
  return Numberer(graph).run();
}

Graph canonicalize(const Graph& graph) {
  const Numbering numbers = number(graph);
  Graph result = graph;

  result.values.assign(static_cast<size_t>(numbers.num_values), {});
  for (size_t id = 0; id < graph.values.size(); ++id) {
    if (numbers.values[id] < 0) {
      continue;
    }
    Value& value = result.values[static_cast<size_t>(numbers.values[id])];
    value = graph.values[id];
    value.storage = numbers.storage(value.storage);
    for (Dim& dim : value.type.sizes) {
      if (dim.kind == Dim::Kind::kSlot) {
        dim.slot = numbers.slot(dim.slot);
      }
    }
  }
  for (size_t slot = 0; slot < graph.slots.size(); ++slot) {
    result.slots[static_cast<size_t>(numbers.slots[slot])] = graph.slots[slot];
  }

  const auto renumber = [&](ValueId& id) { id = numbers.value(id); };
  for (Input& input : result.inputs) {
    renumber(input.value);
  }
  for (Op& op : result.ops) {
    for (Operand& operand : op.operands) {
      renumber(operand.value);
      std::for_each(operand.values.begin(), operand.values.end(), renumber);
      if (operand.kind != Operand::Kind::kObject) {
        for (int32_t& slot : operand.slots) {
          slot = numbers.slot(slot);
        }
      }
    }
    std::for_each(op.results.begin(), op.results.end(), renumber);
    for (Write& write : op.writes) {
      renumber(write.result);
    }
  }
  std::for_each(result.outputs.begin(), result.outputs.end(), renumber);
  for (Mutation& mutation : result.mutations) {
    renumber(mutation.value);
  }
  for (Segment& segment : result.segments) {
    for (Delivery& delivery : segment.deliveries) {
      renumber(delivery.value);
    }
  }
  return result;
}

} // namespace temper::graph
