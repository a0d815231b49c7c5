// A graph as text: for people, logs and tests.
//
// It prints unsound graphs too, as far as they go: what the verifier refuses
// must be visible in a log.
#include "graph/printer.h"

#include <string_view>
#include <utility>

#include "graph/build.h"
#include "graph/constant.h"
#include "graph/names.h"

namespace temper::graph {

namespace {

template <typename List, typename Print>
void append_list(std::string& text, const List& items, const Print& print) {
  bool first = true;
  for (const auto& item : items) {
    if (!first) {
      text += ", ";
    }
    first = false;
    print(item);
  }
}

void append_dim(std::string& text, const Dim& dim) {
  switch (dim.kind) {
    case Dim::Kind::kConst:
      break;
    case Dim::Kind::kSlot:
      text += '$';
      append_int(text, dim.slot);
      text += '=';
      break;
    case Dim::Kind::kAny:
      text += '?';
      break;
  }
  append_int(text, dim.size);
}

void append_type(std::string& text, const Type& type) {
  text += dtype_name(type.dtype);
  text += '[';
  append_list(text, type.sizes, [&](const Dim& dim) { append_dim(text, dim); });
  text += "](";
  append_list(
      text, type.strides, [&](int64_t stride) { append_int(text, stride); });
  text += ')';
  if (type.device != c10::Device(c10::kCPU)) {
    text += " on ";
    text += type.device.str();
  }
  text += type.conj ? " conj" : "";
  text += type.neg ? " neg" : "";
}

class Printer {
 public:
  explicit Printer(const Graph& graph)
      : graph_(graph), typed_(graph.values.size(), false) {}

  std::string run() {
    text_ +=
        graph_.form == Form::kRaw ? "graph raw {\n" : "graph functional {\n";
    for (size_t slot = 0; slot < graph_.slots.size(); ++slot) {
      text_ += "  slot $";
      append_int(text_, static_cast<int64_t>(slot));
      text_ += " = ";
      constant(graph_.slots[slot]);
      text_ += '\n';
    }
    for (size_t object = 0; object < graph_.objects.size(); ++object) {
      text_ += "  object #";
      append_int(text_, static_cast<int64_t>(object));
      text_ += " = ";
      append_quoted(text_, graph_.objects[object].kind);
      text_ += ' ';
      append_quoted(text_, graph_.objects[object].name);
      text_ += '\n';
    }
    inputs();
    values_without_definition();
    const size_t num_forward = static_cast<size_t>(graph_.num_forward_ops);
    ops("  ", 0, num_forward);
    text_ += graph_.outputs.empty() ? "  return" : "  return ";
    append_list(text_, graph_.outputs, [&](ValueId id) { value(id); });
    text_ += '\n';
    for (const Mutation& mutation : graph_.mutations) {
      text_ += "  mutate input ";
      append_int(text_, mutation.input);
      if (mutation.value != kNoValue) {
        text_ += " = ";
        value(mutation.value);
      }
      text_ += mutation.as_output ? " as output\n" : "\n";
    }
    if (segments_are_sound()) {
      segments();
    } else {
      text_ += "  // The segments do not cover the backward ops:\n";
      ops("  ", num_forward, graph_.ops.size());
      for (const Segment& segment : graph_.segments) {
        text_ += "  // segment of ops ";
        append_int(text_, segment.first_op);
        text_ += " to ";
        append_int(text_, segment.end_op);
        text_ += '\n';
      }
    }
    text_ += "}\n";
    return std::move(text_);
  }

  std::string run_op(size_t index) {
    op(graph_.ops.at(index));
    return std::move(text_);
  }

 private:
  void constant(const c10::IValue& value) {
    if (is_constant(value)) {
      append_constant(text_, value);
    } else {
      text_ += "/* no constant: ";
      text_ += value.tagKind();
      text_ += " */";
    }
  }

  void value(ValueId id) {
    if (id == kNoValue) {
      text_ += "none";
      return;
    }
    text_ += '%';
    append_int(text_, id);
  }

  void definition(ValueId id) {
    value(id);
    if (id < 0 || static_cast<size_t>(id) >= typed_.size() ||
        typed_[static_cast<size_t>(id)]) {
      return;
    }
    typed_[static_cast<size_t>(id)] = true;
    const Value& defined = graph_.values[static_cast<size_t>(id)];
    text_ += " : ";
    append_type(text_, defined.type);
    if (defined.storage >= 0) {
      text_ += " @";
      append_int(text_, defined.storage);
    }
  }

  void inputs() {
    size_t tangent = 0;
    for (const Input& input : graph_.inputs) {
      text_ += "  input ";
      definition(input.value);
      text_ += ' ';
      text_ += role_name(input.role);
      text_ += ' ';
      append_quoted(text_, input.name);
      if (input.role == Role::kTangent &&
          tangent < graph_.tangent_outputs.size()) {
        text_ += " of output ";
        append_int(text_, graph_.tangent_outputs[tangent++]);
      }
      text_ += '\n';
    }
  }

  // Passes leave values behind that no op defines any more.
  void values_without_definition() {
    std::vector<bool> defined = typed_;
    const auto define = [&](ValueId id) {
      if (id >= 0 && static_cast<size_t>(id) < defined.size()) {
        defined[static_cast<size_t>(id)] = true;
      }
    };
    for (const Op& op : graph_.ops) {
      for (const ValueId id : op.results) {
        define(id);
      }
      for (const Write& write : op.writes) {
        define(write.result);
      }
    }
    for (size_t id = 0; id < defined.size(); ++id) {
      if (!defined[id]) {
        text_ += "  value ";
        definition(static_cast<ValueId>(id));
        text_ += '\n';
      }
    }
  }

  void ops(std::string_view indent, size_t first, size_t end) {
    for (size_t i = first; i < end && i < graph_.ops.size(); ++i) {
      text_ += indent;
      op(graph_.ops[i]);
      text_ += '\n';
    }
  }

  void op(const Op& op) {
    append_list(text_, op.results, [&](ValueId id) { definition(id); });
    if (!op.results.empty()) {
      text_ += " = ";
    }
    text_ += op_name(op.op);
    text_ += '(';
    append_list(
        text_, op.operands, [&](const Operand& each) { operand(each); });
    text_ += ')';
    if (!op.writes.empty()) {
      text_ += " writes(";
      append_list(text_, op.writes, [&](const Write& each) { write(each); });
      text_ += ')';
    }
  }

  void operand(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::kNone:
        text_ += "none";
        break;
      case Operand::Kind::kValue:
        value(operand.value);
        break;
      case Operand::Kind::kValueList:
        text_ += '[';
        append_list(text_, operand.values, [&](ValueId id) { value(id); });
        text_ += ']';
        break;
      case Operand::Kind::kConstant:
        constant(operand.constant);
        break;
      case Operand::Kind::kSlot:
        text_ += '$';
        append_int(text_, operand.slots.empty() ? -1 : operand.slots[0]);
        break;
      case Operand::Kind::kSlotList:
        text_ += "$[";
        append_list(text_, operand.slots, [&](int32_t slot) {
          append_int(text_, slot);
        });
        text_ += ']';
        break;
      case Operand::Kind::kObject:
        text_ += '#';
        append_int(text_, operand.slots.empty() ? -1 : operand.slots[0]);
        break;
    }
  }

  void write(const Write& write) {
    append_int(text_, write.operand);
    if (write.element >= 0) {
      text_ += '[';
      append_int(text_, write.element);
      text_ += ']';
    }
    if (write.result != kNoValue) {
      text_ += " -> ";
      definition(write.result);
    }
  }

  bool segments_are_sound() const {
    int32_t next = graph_.num_forward_ops;
    for (const Segment& segment : graph_.segments) {
      if (segment.first_op != next || segment.end_op < next) {
        return false;
      }
      next = segment.end_op;
    }
    return next == static_cast<int32_t>(graph_.ops.size());
  }

  void segments() {
    for (const Segment& segment : graph_.segments) {
      text_ += "  segment ";
      if (segment.backward != 0) {
        text_ += "of ";
        append_int(text_, segment.backward);
        text_ += ' ';
      }
      text_ += "tangents(";
      append_list(text_, segment.tangents, [&](int32_t input) {
        append_int(text_, input);
      });
      text_ += ") {\n";
      ops("    ",
          static_cast<size_t>(segment.first_op),
          static_cast<size_t>(segment.end_op));
      for (const Delivery& delivery : segment.deliveries) {
        text_ += delivery.target == Delivery::Target::kInput
            ? "    deliver input "
            : "    deliver output ";
        append_int(text_, delivery.index);
        text_ += " = ";
        value(delivery.value);
        text_ += '\n';
      }
      text_ += "  }\n";
    }
  }

  const Graph& graph_;
  std::vector<bool> typed_; ///< Values whose type has been printed.
  std::string text_;
};

} // namespace

std::string print(const Graph& graph) {
  return Printer(graph).run();
}

std::string print_op(const Graph& graph, int32_t op) {
  return Printer(graph).run_op(static_cast<size_t>(op));
}

std::string print_type(const Type& type) {
  std::string text;
  append_type(text, type);
  return text;
}

} // namespace temper::graph
