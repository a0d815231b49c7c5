// Equality of graphs in every field.
#include "graph/equal.h"

#include <algorithm>

#include "graph/constant.h"

namespace temper::graph {

namespace {

// Structured bindings take every field: a new one does not compile before it
// is compared here.

template <typename T>
bool all_equal(const std::vector<T>& a, const std::vector<T>& b);

bool equal(const Value& a, const Value& b) {
  const auto& [type_a, storage_a] = a;
  const auto& [type_b, storage_b] = b;
  return graph::equal(type_a, type_b) && storage_a == storage_b;
}

bool equal(const Input& a, const Input& b) {
  const auto& [value_a, role_a, name_a] = a;
  const auto& [value_b, role_b, name_b] = b;
  return value_a == value_b && role_a == role_b && name_a == name_b;
}

bool equal(const Object& a, const Object& b) {
  const auto& [kind_a, name_a] = a;
  const auto& [kind_b, name_b] = b;
  return kind_a == kind_b && name_a == name_b;
}

bool equal(const Operand& a, const Operand& b) {
  const auto& [kind_a, value_a, values_a, slots_a, constant_a] = a;
  const auto& [kind_b, value_b, values_b, slots_b, constant_b] = b;
  return kind_a == kind_b && value_a == value_b && values_a == values_b &&
      slots_a == slots_b &&
      ((constant_a.isNone() && constant_b.isNone()) ||
       same_constant(constant_a, constant_b));
}

bool equal(const Write& a, const Write& b) {
  const auto& [operand_a, element_a, result_a] = a;
  const auto& [operand_b, element_b, result_b] = b;
  return operand_a == operand_b && element_a == element_b &&
      result_a == result_b;
}

bool equal(const Op& a, const Op& b) {
  const auto& [op_a, operands_a, results_a, writes_a] = a;
  const auto& [op_b, operands_b, results_b, writes_b] = b;
  return op_a == op_b && all_equal(operands_a, operands_b) &&
      results_a == results_b && all_equal(writes_a, writes_b);
}

bool equal(const Mutation& a, const Mutation& b) {
  const auto& [input_a, value_a, as_output_a] = a;
  const auto& [input_b, value_b, as_output_b] = b;
  return input_a == input_b && value_a == value_b && as_output_a == as_output_b;
}

bool equal(const Delivery& a, const Delivery& b) {
  const auto& [target_a, index_a, value_a] = a;
  const auto& [target_b, index_b, value_b] = b;
  return target_a == target_b && index_a == index_b && value_a == value_b;
}

bool equal(const Segment& a, const Segment& b) {
  const auto& [backward_a, first_a, end_a, tangents_a, deliveries_a] = a;
  const auto& [backward_b, first_b, end_b, tangents_b, deliveries_b] = b;
  return backward_a == backward_b && first_a == first_b && end_a == end_b &&
      tangents_a == tangents_b && all_equal(deliveries_a, deliveries_b);
}

template <typename T>
bool all_equal(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const T& x, const T& y) {
        return equal(x, y);
      });
}

} // namespace

bool equal(const Type& a, const Type& b) {
  const auto& [dtype_a, device_a, sizes_a, strides_a, conj_a, neg_a] = a;
  const auto& [dtype_b, device_b, sizes_b, strides_b, conj_b, neg_b] = b;
  return dtype_a == dtype_b && device_a == device_b && sizes_a == sizes_b &&
      strides_a == strides_b && conj_a == conj_b && neg_a == neg_b;
}

bool equal(const Graph& a, const Graph& b) {
  const auto& [form_a, values_a, inputs_a, objects_a, ops_a, outputs_a, mutations_a, num_forward_a, segments_a, tangents_a, slots_a] =
      a;
  const auto& [form_b, values_b, inputs_b, objects_b, ops_b, outputs_b, mutations_b, num_forward_b, segments_b, tangents_b, slots_b] =
      b;
  return form_a == form_b && all_equal(values_a, values_b) &&
      all_equal(inputs_a, inputs_b) && all_equal(objects_a, objects_b) &&
      all_equal(ops_a, ops_b) && outputs_a == outputs_b &&
      all_equal(mutations_a, mutations_b) && num_forward_a == num_forward_b &&
      all_equal(segments_a, segments_b) && tangents_a == tangents_b &&
      std::equal(
             slots_a.begin(),
             slots_a.end(),
             slots_b.begin(),
             slots_b.end(),
             same_constant);
}

} // namespace temper::graph
