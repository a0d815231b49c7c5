// What a graph is known by: its skeleton, as canonical text and as a hash.
#include "graph/skeleton.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "graph/constant.h"
#include "graph/numbering.h"

namespace temper::graph {

namespace {

// Changes whenever the text of some graph does: hashes are names on disk.
constexpr std::string_view kVersion = "temper skeleton 1";

class Writer {
 public:
  Writer(const Graph& graph, const Numbering& numbers)
      : graph_(graph), numbers_(numbers) {}

  std::string run() {
    // What an op takes, roughly, in a large model.
    text_.reserve(512 + 128 * graph_.ops.size());
    text_ += kVersion;
    text_ += graph_.form == Form::kRaw ? " raw\n" : " functional\n";
    for (const Object& object : graph_.objects) {
      text_ += "object ";
      append_quoted(text_, object.kind);
      text_ += '\n';
    }
    for (const Input& input : graph_.inputs) {
      text_ += input.role == Role::kArgument ? "argument "
          : input.role == Role::kTangent     ? "tangent "
                                             : "state ";
      value(input.value);
      text_ += '\n';
    }
    for (const Op& op : graph_.ops) {
      operation(op);
    }
    ends();
    slots();
    return std::move(text_);
  }

 private:
  void slots() {
    std::string kinds(graph_.slots.size(), ' ');
    for (size_t slot = 0; slot < kinds.size(); ++slot) {
      const c10::IValue& value = graph_.slots[slot];
      kinds[static_cast<size_t>(numbers_.slots[slot])] = value.isInt() ? 'i'
          : value.isDouble()                                           ? 'f'
          : value.isBool()                                             ? 'b'
          : value.isComplexDouble()                                    ? 'c'
                                                                       : '!';
    }
    TEMPER_INTERNAL(
        kinds.find('!') == std::string::npos, "a slot holds no scalar");
    text_ += "slots ";
    text_ += kinds;
    text_ += '\n';
  }

  // A value; at its first mention, its type.
  void value(ValueId id) {
    const int32_t number = numbers_.value(id);
    if (number < 0) {
      text_ += '-';
      return;
    }
    text_ += '%';
    append_int(text_, number);
    if (number == next_value_) {
      ++next_value_;
      const Value& value = graph_.values[static_cast<size_t>(id)];
      type(value.type);
      if (value.storage >= 0) {
        text_ += '@';
        append_int(text_, numbers_.storage(value.storage));
      }
    }
  }

  void type(const Type& type) {
    text_ += ':';
    append_int(text_, static_cast<int64_t>(type.dtype));
    if (!type.device.is_cpu()) {
      text_ += 'd';
      append_int(text_, static_cast<int64_t>(type.device.type()));
      text_ += '.';
      append_int(text_, type.device.index());
    }
    if (type.conj) {
      text_ += 'c';
    }
    if (type.neg) {
      text_ += 'n';
    }
    text_ += '[';
    for (const Dim& dim : type.sizes) {
      switch (dim.kind) {
        case Dim::Kind::kConst:
          append_int(text_, dim.size);
          break;
        case Dim::Kind::kSlot:
          text_ += '$';
          append_int(text_, numbers_.slot(dim.slot));
          break;
        case Dim::Kind::kAny:
          text_ += '?';
          break;
      }
      // Sizes 0 and 1 decide what an op does: they are structure even where
      // the recorder did not make them constants.
      if (dim.kind != Dim::Kind::kConst && (dim.size == 0 || dim.size == 1)) {
        text_ += dim.size == 0 ? "=0" : "=1";
      }
      text_ += ',';
    }
    text_ += ']';
    strides(type);
  }

  // The order of dims by stride, outermost first, each with how its stride
  // relates to what the dims inside of it take up: no mark if it is exactly
  // that, g (gap) if more, o (overlap) if less, z if it is zero. Nothing for
  // the usual case, row-major without marks. Strides of dims of size 1, and
  // all strides of a tensor without elements, mean nothing.
  void strides(const Type& type) {
    const auto& sizes = type.sizes;
    TEMPER_INTERNAL(type.strides.size() == sizes.size());
    c10::SmallVector<size_t, 8> order;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      if (sizes[dim].size == 0) {
        return;
      }
      if (sizes[dim].size != 1) {
        order.push_back(dim);
      }
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return type.strides[a] > type.strides[b];
    });
    c10::SmallVector<char, 8> marks(order.size(), ' ');
    bool usual = std::is_sorted(order.begin(), order.end());
    int64_t inside = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const int64_t stride = type.strides[order[i]];
      if (stride != inside) {
        marks[i] = stride == 0 ? 'z' : stride > inside ? 'g' : 'o';
        usual = false;
      }
      if (stride > 0) {
        inside = stride * sizes[order[i]].size;
      }
    }
    if (usual) {
      return;
    }
    text_ += '(';
    for (size_t i = 0; i < order.size(); ++i) {
      append_int(text_, static_cast<int64_t>(order[i]));
      text_ += marks[i];
    }
    text_ += ')';
  }

  void operand(const Operand& operand) {
    switch (operand.kind) {
      case Operand::Kind::kNone:
        text_ += '-';
        break;
      case Operand::Kind::kValue:
        value(operand.value);
        break;
      case Operand::Kind::kValueList:
        text_ += '[';
        for (const ValueId id : operand.values) {
          value(id);
          text_ += ' ';
        }
        text_ += ']';
        break;
      case Operand::Kind::kConstant:
        append_constant(text_, operand.constant);
        break;
      case Operand::Kind::kSlot:
        text_ += '$';
        append_int(text_, numbers_.slot(operand.slots.at(0)));
        break;
      case Operand::Kind::kSlotList:
        text_ += "$[";
        for (const int32_t slot : operand.slots) {
          append_int(text_, numbers_.slot(slot));
          text_ += ' ';
        }
        text_ += ']';
        break;
      case Operand::Kind::kObject:
        text_ += '#';
        append_int(text_, operand.slots.at(0));
        break;
    }
  }

  void operation(const Op& op) {
    const c10::OperatorName& name = op.op.operator_name();
    text_ += name.name;
    text_ += '.';
    text_ += name.overload_name;
    for (const Operand& each : op.operands) {
      text_ += ' ';
      operand(each);
    }
    text_ += " ->";
    for (const ValueId id : op.results) {
      text_ += ' ';
      value(id);
    }
    for (const Write& write : op.writes) {
      text_ += " !";
      append_int(text_, write.operand);
      if (write.element >= 0) {
        text_ += '.';
        append_int(text_, write.element);
      }
      text_ += '=';
      value(write.result);
    }
    text_ += '\n';
  }

  void ends() {
    text_ += "forward ";
    append_int(text_, graph_.num_forward_ops);
    text_ += "\noutputs";
    for (const ValueId id : graph_.outputs) {
      text_ += ' ';
      value(id);
    }
    text_ += '\n';
    for (const Mutation& mutation : graph_.mutations) {
      text_ += mutation.as_output ? "mutation out " : "mutation in ";
      append_int(text_, mutation.input);
      text_ += ' ';
      value(mutation.value);
      text_ += '\n';
    }
    if (!graph_.tangent_outputs.empty()) {
      text_ += "tangents";
      append_ints(graph_.tangent_outputs);
      text_ += '\n';
    }
    for (const Segment& segment : graph_.segments) {
      text_ += "segment ";
      append_int(text_, segment.first_op);
      text_ += ' ';
      append_int(text_, segment.end_op);
      text_ += " backward ";
      append_int(text_, segment.backward);
      text_ += " of";
      append_ints(segment.tangents);
      for (const Delivery& delivery : segment.deliveries) {
        text_ += delivery.target == Delivery::Target::kInput ? " in " : " out ";
        append_int(text_, delivery.index);
        text_ += ' ';
        value(delivery.value);
      }
      text_ += '\n';
    }
  }

  void append_ints(const std::vector<int32_t>& numbers) {
    for (const int32_t each : numbers) {
      text_ += ' ';
      append_int(text_, each);
    }
  }

  const Graph& graph_;
  const Numbering& numbers_;
  std::string text_;
  int32_t next_value_ = 0;
};

} // namespace

Skeleton skeleton(const Graph& graph) {
  Numbering numbers = number(graph);
  Skeleton result;
  result.text = Writer(graph, numbers).run();
  result.hash = base::hash128(result.text);
  result.slots.resize(graph.slots.size());
  for (size_t slot = 0; slot < graph.slots.size(); ++slot) {
    result.slots[static_cast<size_t>(numbers.slots[slot])] = graph.slots[slot];
  }
  result.canonical_slot = std::move(numbers.slots);
  return result;
}

bool same_skeleton(const Skeleton& a, const Skeleton& b) {
  return a.hash == b.hash && a.text == b.text;
}

} // namespace temper::graph
