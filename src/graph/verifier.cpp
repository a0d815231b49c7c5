// Checks that a graph is sound.
#include "graph/verifier.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/build.h"
#include "graph/constant.h"
#include "graph/schema_check.h"
#include "graph/slots.h"

namespace temper::graph {

namespace {

template <typename T>
bool in_range(int32_t index, const std::vector<T>& items) {
  return index >= 0 && static_cast<size_t>(index) < items.size();
}

template <typename T>
const T& at(const std::vector<T>& items, int32_t index) {
  return items[static_cast<size_t>(index)];
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), defined_(graph.values.size(), false) {}

  void run() {
    slots();
    for (size_t id = 0; id < graph_.values.size(); ++id) {
      where_ = c10::str("value %", id);
      value(graph_.values[id]);
    }
    inputs();
    const auto num_ops = static_cast<int32_t>(graph_.ops.size());
    const int32_t num_forward = graph_.num_forward_ops;
    where_ = "graph";
    require(
        num_forward >= 0 && num_forward <= num_ops,
        "num_forward_ops is ",
        num_forward,
        " of ",
        num_ops,
        " ops");
    ops(0, num_forward);
    outputs();
    mutations();
    segments();
  }

 private:
  // `where_` tells what is being looked at.
  template <typename... Words>
  void require(bool condition, const Words&... words) const {
    TEMPER_INTERNAL(condition, "unsound graph: ", where_, ": ", words...);
  }

  void slots() {
    for (size_t slot = 0; slot < graph_.slots.size(); ++slot) {
      where_ = c10::str("slot $", slot);
      require(
          is_slot_value(graph_.slots[slot]),
          "holds ",
          graph_.slots[slot].tagKind(),
          ", expected int, double, bool or complex");
    }
  }

  void value(const Value& value) const {
    const Type& type = value.type;
    require(
        type.sizes.size() == type.strides.size(),
        "has ",
        type.sizes.size(),
        " sizes and ",
        type.strides.size(),
        " strides");
    for (const Dim& dim : type.sizes) {
      require(dim.size >= 0, "has the size ", dim.size);
      const bool is_slot = dim.kind == Dim::Kind::kSlot;
      require(
          is_slot == (dim.slot != -1),
          "a size has the slot ",
          dim.slot,
          " but its kind says ",
          is_slot ? "it is one" : "it is none");
      require(
          !is_slot || in_range(dim.slot, graph_.slots),
          "a size names slot $",
          dim.slot,
          " of ",
          graph_.slots.size());
      require(
          !is_slot || at(graph_.slots, dim.slot).isInt(),
          "a size names slot $",
          dim.slot,
          ", which holds no int");
    }
    const bool raw = graph_.form == Form::kRaw;
    require(
        raw ? value.storage >= 0 : value.storage == -1,
        raw ? "has no storage in the raw form"
            : "has a storage in the functional form");
  }

  void inputs() {
    size_t num_tangents = 0;
    std::vector<bool> seen(graph_.values.size(), false);
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Input& input = graph_.inputs[i];
      where_ = c10::str("input ", i, " ('", input.name, "')");
      exists(input.value);
      const auto id = static_cast<size_t>(input.value);
      require(!seen[id], "%", id, " is an input already");
      seen[id] = true;
      const bool is_tangent = input.role == Role::kTangent;
      num_tangents += is_tangent ? 1 : 0;
      // In a joint graph a tangent is there from its segment on.
      if (is_tangent && !graph_.segments.empty()) {
        pending_tangents_.insert(input.value);
      } else {
        defined_[id] = true;
      }
    }
    where_ = "tangents";
    require(
        graph_.tangent_outputs.size() == num_tangents ||
            (graph_.segments.empty() && graph_.tangent_outputs.empty()),
        "the outputs of ",
        graph_.tangent_outputs.size(),
        " tangents are named, and ",
        num_tangents,
        " inputs are tangents");
    for (const int32_t output : graph_.tangent_outputs) {
      require(
          in_range(output, graph_.outputs),
          "output ",
          output,
          " of ",
          graph_.outputs.size(),
          " is named");
    }
  }

  void exists(ValueId id) const {
    require(
        in_range(id, graph_.values),
        "value %",
        id,
        " of ",
        graph_.values.size());
  }

  bool is_defined(ValueId id) const {
    return defined_[static_cast<size_t>(id)];
  }

  void use(ValueId id) const {
    exists(id);
    require(
        pending_tangents_.count(id) == 0,
        "uses tangent %",
        id,
        " before a segment takes it in");
    require(is_defined(id), "uses %", id, " before its definition");
    require(
        other_backward_.empty() || !other_backward_[static_cast<size_t>(id)],
        "uses %",
        id,
        " of another backward");
  }

  void define(ValueId id) {
    exists(id);
    require(
        !is_defined(id) && pending_tangents_.count(id) == 0,
        "defines %",
        id,
        " a second time");
    defined_[static_cast<size_t>(id)] = true;
  }

  void ops(int32_t first, int32_t end) {
    for (int32_t i = first; i < end; ++i) {
      const Op& each = at(graph_.ops, i);
      where_ = c10::str("op ", i, " (", op_name(each.op), ")");
      op(each);
    }
  }

  void op(const Op& op) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      operand(op.operands[i], i);
    }
    for (const Write& each : op.writes) {
      write(op, each);
    }
    const std::string mismatch = schema_mismatch(graph_, op);
    require(mismatch.empty(), mismatch);

    for (const Write& each : op.writes) {
      if (graph_.form == Form::kFunctional) {
        define(each.result);
      }
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      const ValueId id = op.results[i];
      if (id == kNoValue) {
        continue;
      }
      const bool again = graph_.form == Form::kRaw
          ? is_operand(op, id)
          : std::any_of(
                op.writes.begin(), op.writes.end(), [&](const Write& write) {
                  return write.result == id;
                });
      if (!again) {
        define(id);
      }
    }
  }

  static bool is_operand(const Op& op, ValueId id) {
    return std::any_of(
        op.operands.begin(), op.operands.end(), [&](const Operand& operand) {
          return (operand.kind == Operand::Kind::kValue &&
                  operand.value == id) ||
              std::count(operand.values.begin(), operand.values.end(), id) > 0;
        });
  }

  void operand(const Operand& operand, size_t i) const {
    using Kind = Operand::Kind;
    const Kind kind = operand.kind;
    // A field that the kind does not use could be taken for one that it does.
    require(
        (kind == Kind::kValue || operand.value == kNoValue) &&
            (kind == Kind::kValueList || operand.values.empty()) &&
            (kind == Kind::kSlot || kind == Kind::kSlotList ||
             kind == Kind::kObject || operand.slots.empty()) &&
            (kind == Kind::kConstant || operand.constant.isNone()),
        "operand ",
        i,
        " has a field that its kind does not use");
    require(
        (kind != Kind::kSlot && kind != Kind::kObject) ||
            operand.slots.size() == 1,
        "operand ",
        i,
        " has ",
        operand.slots.size(),
        " indices, expected one");
    switch (kind) {
      case Kind::kNone:
        break;
      case Kind::kValue:
        use(operand.value);
        break;
      case Kind::kValueList:
        for (const ValueId id : operand.values) {
          if (id != kNoValue) {
            use(id);
          }
        }
        break;
      case Kind::kConstant:
        require(
            is_constant(operand.constant),
            "operand ",
            i,
            " is no constant but ",
            operand.constant.tagKind());
        break;
      case Kind::kSlot:
      case Kind::kSlotList:
        for (const int32_t slot : operand.slots) {
          require(
              in_range(slot, graph_.slots),
              "operand ",
              i,
              " names slot $",
              slot,
              " of ",
              graph_.slots.size());
        }
        break;
      case Kind::kObject:
        require(
            in_range(operand.slots[0], graph_.objects),
            "operand ",
            i,
            " names object #",
            operand.slots[0],
            " of ",
            graph_.objects.size());
        break;
    }
  }

  void write(const Op& op, const Write& write) const {
    require(
        in_range(write.operand, op.operands),
        "writes operand ",
        write.operand,
        " of ",
        op.operands.size());
    const Operand& operand = at(op.operands, write.operand);
    const bool is_tensor = operand.kind == Operand::Kind::kValueList
        ? in_range(write.element, operand.values) &&
            at(operand.values, write.element) != kNoValue
        : operand.kind == Operand::Kind::kValue && write.element == -1;
    require(
        is_tensor,
        "writes operand ",
        write.operand,
        write.element < 0 ? "" : c10::str("[", write.element, "]"),
        ", which is no tensor");
    const auto same_target = [&](const Write& other) {
      return other.operand == write.operand && other.element == write.element;
    };
    require(
        std::count_if(op.writes.begin(), op.writes.end(), same_target) == 1,
        "writes operand ",
        write.operand,
        " more than once");
    const bool raw = graph_.form == Form::kRaw;
    require(
        raw == (write.result == kNoValue),
        "its write of operand ",
        write.operand,
        raw ? " has a result in the raw form"
            : " has no result in the functional form");
  }

  void outputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      where_ = c10::str("output ", i);
      if (graph_.outputs[i] != kNoValue) {
        use(graph_.outputs[i]);
      }
    }
  }

  void mutations() {
    std::set<int32_t> seen;
    const bool raw = graph_.form == Form::kRaw;
    for (size_t i = 0; i < graph_.mutations.size(); ++i) {
      const Mutation& mutation = graph_.mutations[i];
      where_ = c10::str("mutation ", i);
      require(
          in_range(mutation.input, graph_.inputs),
          "of input ",
          mutation.input,
          " of ",
          graph_.inputs.size());
      require(
          at(graph_.inputs, mutation.input).role != Role::kTangent,
          "of input ",
          mutation.input,
          ", a tangent");
      require(
          seen.insert(mutation.input).second,
          "of input ",
          mutation.input,
          ", which has one already");
      require(
          raw == (mutation.value == kNoValue),
          raw ? "has a value in the raw form"
              : "has no value in the functional form");
      if (!raw) {
        use(mutation.value);
      }
    }
  }

  // Hides what the backwards until here have defined.
  void begin_backward(const std::vector<bool>& in_forward) {
    other_backward_ = defined_;
    for (size_t id = 0; id < in_forward.size(); ++id) {
      other_backward_[id] = defined_[id] && !in_forward[id];
    }
  }

  void segments() {
    const std::vector<bool> in_forward = defined_;
    int32_t next = graph_.num_forward_ops;
    for (size_t i = 0; i < graph_.segments.size(); ++i) {
      const Segment& segment = graph_.segments[i];
      const std::string name = c10::str("segment ", i);
      where_ = name;
      require(
          segment.first_op == next && segment.end_op >= next &&
              static_cast<size_t>(segment.end_op) <= graph_.ops.size(),
          "covers ops [",
          segment.first_op,
          ", ",
          segment.end_op,
          "), expected to begin at ",
          next,
          " and to end by ",
          graph_.ops.size());
      next = segment.end_op;
      const int32_t before = i == 0 ? 0 : graph_.segments[i - 1].backward;
      require(
          segment.backward == before ||
              (i > 0 && segment.backward == before + 1),
          "is of backward ",
          segment.backward,
          " after one of backward ",
          before);
      if (segment.backward != before) {
        begin_backward(in_forward);
      }
      for (const int32_t tangent : segment.tangents) {
        require(
            in_range(tangent, graph_.inputs) &&
                at(graph_.inputs, tangent).role == Role::kTangent,
            "takes in input ",
            tangent,
            ", which is no tangent");
        const ValueId id = at(graph_.inputs, tangent).value;
        require(
            pending_tangents_.erase(id) == 1,
            "takes in tangent ",
            tangent,
            " a second time");
        defined_[static_cast<size_t>(id)] = true;
      }
      ops(segment.first_op, segment.end_op);
      where_ = name;
      for (const Delivery& delivery : segment.deliveries) {
        deliver(delivery, segment.backward);
      }
    }
    where_ = "backward";
    require(
        static_cast<size_t>(next) == graph_.ops.size(),
        "the segments end at op ",
        next,
        " of ",
        graph_.ops.size());
    require(
        pending_tangents_.empty(),
        "no segment takes in tangent %",
        pending_tangents_.empty() ? kNoValue : *pending_tangents_.begin());
  }

  // True iff a segment of that backward takes in this graph input.
  bool takes_in(int32_t backward, int32_t input) const {
    return std::any_of(
        graph_.segments.begin(),
        graph_.segments.end(),
        [&](const Segment& segment) {
          const auto& in = segment.tangents;
          return segment.backward == backward &&
              std::find(in.begin(), in.end(), input) != in.end();
        });
  }

  void deliver(const Delivery& delivery, int32_t backward) const {
    if (delivery.value != kNoValue) { // Else an undefined gradient is sent.
      use(delivery.value);
    }
    if (delivery.target == Delivery::Target::kInput) {
      require(
          in_range(delivery.index, graph_.inputs) &&
              at(graph_.inputs, delivery.index).role != Role::kTangent,
          "delivers to input ",
          delivery.index,
          ", which has no gradient");
      return;
    }
    require(
        in_range(delivery.index, graph_.outputs),
        "delivers to output ",
        delivery.index,
        " of ",
        graph_.outputs.size());
    // A tangent of that output, if this backward has one, comes later.
    size_t tangent = 0;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Input& input = graph_.inputs[i];
      if (input.role != Role::kTangent) {
        continue;
      }
      require(
          graph_.tangent_outputs[tangent] != delivery.index ||
              pending_tangents_.count(input.value) > 0 ||
              !takes_in(backward, static_cast<int32_t>(i)),
          "delivers to output ",
          delivery.index,
          ", whose tangent an earlier segment took in");
      ++tangent;
    }
  }

  const Graph& graph_;
  std::vector<bool> defined_; ///< Values that have a definition by now.
  /// Values of earlier backwards; empty in the first one.
  std::vector<bool> other_backward_;
  /// Tangents that no segment has taken in yet.
  std::set<ValueId> pending_tangents_;
  std::string where_;
};

} // namespace

void verify(const Graph& graph) {
  Verifier(graph).run();
}

} // namespace temper::graph
