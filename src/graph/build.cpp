// Making graphs in code: operands, types, ops by name.
#include "graph/build.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace temper::graph {

namespace {

template <typename T>
int32_t size_of(const std::vector<T>& items) {
  return static_cast<int32_t>(items.size());
}

} // namespace

c10::OperatorHandle find_op(std::string_view name) {
  const size_t dot = name.find('.');
  c10::OperatorName key(std::string(name.substr(0, dot)), "");
  if (dot != std::string_view::npos) {
    key.overload_name = name.substr(dot + 1);
  }
  const auto found = c10::Dispatcher::singleton().findSchema(key);
  TEMPER_CHECK(
      found.has_value(),
      "no operator '",
      name,
      "' is registered; expected a name as in 'aten::add.Tensor' (is the "
      "library that defines it loaded?)");
  return *found;
}

std::string op_name(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name
                                    : name.name + "." + name.overload_name;
}

Operand none_operand() {
  return {};
}

Operand value_operand(ValueId value) {
  Operand operand;
  operand.kind = Operand::Kind::kValue;
  operand.value = value;
  return operand;
}

Operand value_list_operand(std::vector<ValueId> values) {
  Operand operand;
  operand.kind = Operand::Kind::kValueList;
  operand.values = std::move(values);
  return operand;
}

Operand constant_operand(c10::IValue constant) {
  Operand operand;
  operand.kind = Operand::Kind::kConstant;
  operand.constant = std::move(constant);
  return operand;
}

Operand slot_operand(int32_t slot) {
  Operand operand;
  operand.kind = Operand::Kind::kSlot;
  operand.slots = {slot};
  return operand;
}

Operand slot_list_operand(std::vector<int32_t> slots) {
  Operand operand;
  operand.kind = Operand::Kind::kSlotList;
  operand.slots = std::move(slots);
  return operand;
}

Operand object_operand(int32_t object) {
  Operand operand;
  operand.kind = Operand::Kind::kObject;
  operand.slots = {object};
  return operand;
}

Dim const_dim(int64_t size) {
  return {Dim::Kind::kConst, -1, size};
}

Dim slot_dim(int32_t slot, int64_t seen) {
  return {Dim::Kind::kSlot, slot, seen};
}

Dim any_dim(int64_t seen) {
  return {Dim::Kind::kAny, -1, seen};
}

Type dense_type(
    c10::ScalarType dtype,
    std::vector<Dim> sizes,
    c10::Device device) {
  Type type;
  type.dtype = dtype;
  type.device = device;
  type.sizes = std::move(sizes);
  type.strides.resize(type.sizes.size());
  int64_t stride = 1;
  for (size_t dim = type.sizes.size(); dim-- > 0;) {
    type.strides[dim] = stride;
    // As ATen: a dim without elements does not zero the strides outside it.
    stride *= std::max<int64_t>(type.sizes[dim].size, 1);
  }
  return type;
}

int32_t add_slot(Graph& graph, c10::IValue value) {
  graph.slots.push_back(std::move(value));
  return size_of(graph.slots) - 1;
}

int32_t add_object(Graph& graph, std::string kind, std::string name) {
  graph.objects.push_back({std::move(kind), std::move(name)});
  return size_of(graph.objects) - 1;
}

ValueId add_value(Graph& graph, Type type, int32_t storage) {
  graph.values.push_back({std::move(type), storage});
  return size_of(graph.values) - 1;
}

ValueId add_input(
    Graph& graph,
    Type type,
    Role role,
    std::string name,
    int32_t storage) {
  const ValueId id = add_value(graph, std::move(type), storage);
  graph.inputs.push_back({id, role, std::move(name)});
  return id;
}

Op& add_op(
    Graph& graph,
    std::string_view name,
    std::vector<Operand> operands,
    std::vector<ValueId> results,
    std::vector<Write> writes) {
  graph.ops.push_back(
      {find_op(name),
       std::move(operands),
       std::move(results),
       std::move(writes)});
  if (graph.segments.empty()) {
    graph.num_forward_ops = size_of(graph.ops);
  }
  return graph.ops.back();
}

} // namespace temper::graph
