// Random graphs: any contents that the types of graph.h can hold, sound or not.
#pragma once

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph/build.h"
#include "graph/graph.h"

namespace temper::graph {

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed) : random_(seed) {}

  Graph make() {
    Graph graph;
    graph.form = coin() ? Form::kRaw : Form::kFunctional;
    for (int n = below(6); n-- > 0;) {
      graph.slots.push_back(scalar());
    }
    // Something for sizes to name.
    graph.slots.emplace_back(int64_t{5});
    num_slots_ = static_cast<int>(graph.slots.size());
    for (int n = below(3); n-- > 0;) {
      graph.objects.push_back({text(), text()});
    }
    for (int n = 1 + below(4); n-- > 0;) {
      const Role role = static_cast<Role>(below(8));
      add_input(graph, type(), role, text(), storage(graph));
      if (role == Role::kTangent) {
        graph.tangent_outputs.push_back(below(5));
      }
    }
    forward_ops(graph, below(10));
    for (int n = below(4); n-- > 0;) {
      graph.outputs.push_back(any_value(graph));
    }
    for (int n = below(3); n-- > 0;) {
      graph.mutations.push_back({below(9), any_value(graph), coin()});
    }
    for (int n = below(4); n-- > 0;) {
      add_segment(graph);
    }
    return graph;
  }

  /// The same graph under other numbers for values, slots and storages.
  Graph renumbered(const Graph& graph) {
    Graph result = graph;
    const auto value_of = permutation(graph.values.size());
    const auto slot_of = permutation(graph.slots.size());
    const auto value = [&](ValueId& id) {
      id = id < 0 ? id : value_of[static_cast<size_t>(id)];
    };
    const auto slot = [&](int32_t& id) {
      id = id < 0 ? id : slot_of[static_cast<size_t>(id)];
    };
    const auto storage_of = permutation(64);
    for (size_t i = 0; i < graph.values.size(); ++i) {
      Value& moved = result.values[static_cast<size_t>(value_of[i])];
      moved = graph.values[i];
      for (Dim& dim : moved.type.sizes) {
        slot(dim.slot);
      }
      if (moved.storage >= 0) {
        moved.storage = storage_of[static_cast<size_t>(moved.storage)];
      }
    }
    for (size_t i = 0; i < graph.slots.size(); ++i) {
      result.slots[static_cast<size_t>(slot_of[i])] = graph.slots[i];
    }
    for (Input& input : result.inputs) {
      value(input.value);
    }
    for (Op& op : result.ops) {
      for (Operand& operand : op.operands) {
        value(operand.value);
        std::for_each(operand.values.begin(), operand.values.end(), value);
        if (operand.kind != Operand::Kind::kObject) {
          std::for_each(operand.slots.begin(), operand.slots.end(), slot);
        }
      }
      std::for_each(op.results.begin(), op.results.end(), value);
      for (Write& write : op.writes) {
        value(write.result);
      }
    }
    std::for_each(result.outputs.begin(), result.outputs.end(), value);
    for (Mutation& mutation : result.mutations) {
      value(mutation.value);
    }
    for (Segment& segment : result.segments) {
      for (Delivery& delivery : segment.deliveries) {
        value(delivery.value);
      }
    }
    return result;
  }

 private:
  int below(int n) {
    return static_cast<int>(random_() % static_cast<uint32_t>(n));
  }
  bool coin() {
    return below(2) == 0;
  }

  std::vector<int32_t> permutation(size_t size) {
    std::vector<int32_t> result(size);
    std::iota(result.begin(), result.end(), 0);
    std::shuffle(result.begin(), result.end(), random_);
    return result;
  }

  std::string text() {
    std::string result;
    for (int n = below(6); n-- > 0;) {
      result += static_cast<char>(random_());
    }
    return result;
  }

  // All bits are equally likely: NaNs of any payload, denormals, infinities.
  double real() {
    const uint64_t high = random_();
    const uint64_t bits = high << 32 | random_();
    return coin() ? std::bit_cast<double>(bits) : 0.25 * below(100);
  }

  c10::IValue scalar() {
    switch (below(4)) {
      case 0:
        return static_cast<int64_t>(random_()) - (int64_t{1} << 31);
      case 1:
        return real();
      case 2:
        return coin();
      default:
        return c10::complex<double>(real(), real());
    }
  }

  c10::IValue constant() {
    switch (below(6)) {
      case 0:
        return text();
      case 1:
        return c10::Device(coin() ? "cpu" : "cuda:3");
      case 2: {
        c10::List<int64_t> list;
        for (int n = below(4); n-- > 0;) {
          list.push_back(below(9));
        }
        return list;
      }
      case 3: {
        c10::List<double> list;
        for (int n = below(4); n-- > 0;) {
          list.push_back(real());
        }
        return list;
      }
      default:
        return scalar();
    }
  }

  Type type() {
    Type result;
    constexpr auto kDtypes = std::to_array<c10::ScalarType>(
        {c10::kFloat, c10::kBFloat16, c10::kLong, c10::kBool, c10::kQInt8});
    result.dtype = kDtypes[static_cast<size_t>(below(5))];
    result.device = c10::Device(coin() ? "cpu" : "cuda:0");
    result.conj = below(8) == 0;
    result.neg = below(8) == 0;
    for (int n = below(4); n-- > 0;) {
      const int64_t size = below(5);
      result.sizes.push_back(
          coin()       ? const_dim(size)
              : coin() ? any_dim(size)
                       : slot_dim(num_slots_ - 1, size));
      result.strides.push_back(below(7));
    }
    return result;
  }

  int32_t storage(const Graph& graph) {
    return graph.form == Form::kRaw ? below(64) : -1;
  }

  ValueId any_value(const Graph& graph) {
    return below(static_cast<int>(graph.values.size()) + 1) - 1;
  }

  Operand operand(const Graph& graph) {
    switch (below(7)) {
      case 0:
        return none_operand();
      case 1: {
        std::vector<ValueId> values;
        for (int n = below(4); n-- > 0;) {
          values.push_back(any_value(graph));
        }
        return value_list_operand(std::move(values));
      }
      case 2:
        return constant_operand(constant());
      case 3:
        return slot_operand(below(num_slots_));
      case 4: {
        std::vector<int32_t> slots;
        for (int n = below(4); n-- > 0;) {
          slots.push_back(below(num_slots_));
        }
        return slot_list_operand(std::move(slots));
      }
      case 5:
        return object_operand(below(4));
      default:
        return value_operand(below(static_cast<int>(graph.values.size())));
    }
  }

  Op op(Graph& graph) {
    constexpr auto kNames = std::to_array<const char*>(
        {"aten::add.Tensor", "aten::mm", "aten::relu_", "aten::cat"});
    Op result{find_op(kNames[static_cast<size_t>(below(4))]), {}, {}, {}};
    for (int n = below(5); n-- > 0;) {
      result.operands.push_back(operand(graph));
    }
    for (int n = below(3); n-- > 0;) {
      result.results.push_back(
          coin() ? add_value(graph, type(), storage(graph)) : any_value(graph));
    }
    for (int n = below(3); n-- > 0;) {
      const ValueId content =
          coin() ? add_value(graph, type(), storage(graph)) : any_value(graph);
      result.writes.push_back({below(5), below(3) - 1, content});
    }
    return result;
  }

  void forward_ops(Graph& graph, int count) {
    while (count-- > 0) {
      graph.ops.push_back(op(graph));
    }
    graph.num_forward_ops = static_cast<int32_t>(graph.ops.size());
  }

  void add_segment(Graph& graph) {
    Segment segment;
    segment.first_op = static_cast<int32_t>(graph.ops.size());
    for (int n = below(4); n-- > 0;) {
      graph.ops.push_back(op(graph));
    }
    segment.end_op = static_cast<int32_t>(graph.ops.size());
    for (int n = below(3); n-- > 0;) {
      segment.tangents.push_back(below(9));
    }
    for (int n = below(3); n-- > 0;) {
      segment.deliveries.push_back(
          {coin() ? Delivery::Target::kInput : Delivery::Target::kOutput,
           below(9),
           any_value(graph)});
    }
    graph.segments.push_back(std::move(segment));
  }

  std::mt19937 random_;
  int num_slots_ = 0;
};

} // namespace temper::graph
