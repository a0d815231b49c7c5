// Making graphs in code: operands, types, ops by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace temper::graph {

/// The operator "aten::add.Tensor" or "aten::mm"; an `Error` if LibTorch, or
/// what is loaded, has none of that name.
c10::OperatorHandle find_op(std::string_view name);

/// The inverse: the name and, where there is one, the overload.
std::string op_name(const c10::OperatorHandle& op);

Operand none_operand();
Operand value_operand(ValueId value);
Operand value_list_operand(std::vector<ValueId> values);
Operand constant_operand(c10::IValue constant);
Operand slot_operand(int32_t slot);
Operand slot_list_operand(std::vector<int32_t> slots);
Operand object_operand(int32_t object);

Dim const_dim(int64_t size);
Dim slot_dim(int32_t slot, int64_t seen);
Dim any_dim(int64_t seen);

/// A row-major tensor.
Type dense_type(
    c10::ScalarType dtype,
    std::vector<Dim> sizes,
    c10::Device device = c10::kCPU);

// These append to a graph and return what stands for the new thing.

int32_t add_slot(Graph& graph, c10::IValue value);
int32_t add_object(Graph& graph, std::string kind, std::string name);
ValueId add_value(Graph& graph, Type type, int32_t storage = -1);
ValueId add_input(
    Graph& graph,
    Type type,
    Role role,
    std::string name,
    int32_t storage = -1);
/// Also counts it as a forward op while the graph has no segments.
Op& add_op(
    Graph& graph,
    std::string_view name,
    std::vector<Operand> operands,
    std::vector<ValueId> results,
    std::vector<Write> writes = {});

} // namespace temper::graph
