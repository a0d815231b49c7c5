// Two graphs of one skeleton: which slot of the one is which of the other.
#include "graph/unify.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string_view>

#include "graph/names.h"
#include "graph/numbering.h"
#include "graph/printer.h"
#include "graph/skeleton.h"

namespace temper::graph {

namespace {

// Splits off the first line.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// One line of a skeleton's text, told in the terms of its graph. `graph` is in
// canonical numbers, so that two sides can be compared.
struct Side {
  std::string label; ///< "op 3"
  std::string text;
};

Side side(const Graph& graph, size_t line, std::string_view text) {
  if (text.empty()) {
    return {"the end", "nothing"};
  }
  // The text begins with a line on the form; then come objects, inputs, ops.
  size_t index = line - 1;
  if (line == 0) {
    return {"the form", std::string(text)};
  }
  if (index < graph.objects.size()) {
    return {c10::str("object ", index), graph.objects[index].kind};
  }
  index -= graph.objects.size();
  if (index < graph.inputs.size()) {
    const Input& input = graph.inputs[index];
    const Value& value = graph.values[static_cast<size_t>(input.value)];
    return {
        c10::str("input ", index),
        c10::str(
            input.name,
            " : ",
            print_type(value.type),
            " ",
            role_name(input.role))};
  }
  index -= graph.inputs.size();
  if (index < graph.ops.size()) {
    return {
        c10::str("op ", index), print_op(graph, static_cast<int32_t>(index))};
  }
  return {"the graph", std::string(text)};
}

// The texts differ.
std::string first_difference(
    const Graph& a,
    const Graph& b,
    std::string_view text_a,
    std::string_view text_b) {
  for (size_t line = 0;; ++line) {
    const std::string_view line_a = take_line(text_a);
    const std::string_view line_b = take_line(text_b);
    if (line_a == line_b) {
      continue;
    }
    const Side of_a = side(canonicalize(a), line, line_a);
    const Side of_b = side(canonicalize(b), line, line_b);
    if (of_a.label == of_b.label) {
      return c10::str(
          of_a.label, " differs: `", of_a.text, "` and `", of_b.text, "`");
    }
    return c10::str(
        of_a.label,
        " `",
        of_a.text,
        "` stands against ",
        of_b.label,
        " `",
        of_b.text,
        "`");
  }
}

} // namespace

std::optional<Unified> unify(const Graph& a, const Graph& b, std::string* why) {
  const Skeleton of_a = skeleton(a);
  Skeleton of_b = skeleton(b);
  if (!same_skeleton(of_a, of_b)) {
    if (why != nullptr) {
      *why = first_difference(a, b, of_a.text, of_b.text);
    }
    return std::nullopt;
  }
  const size_t num_slots = a.slots.size();
  std::vector<int32_t> b_of_canonical(num_slots);
  for (size_t slot = 0; slot < num_slots; ++slot) {
    b_of_canonical[static_cast<size_t>(of_b.canonical_slot[slot])] =
        static_cast<int32_t>(slot);
  }
  Unified result;
  result.a_slot.resize(num_slots);
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const int32_t other =
        b_of_canonical[static_cast<size_t>(of_a.canonical_slot[slot])];
    result.b_slot.push_back(other);
    result.a_slot[static_cast<size_t>(other)] = static_cast<int32_t>(slot);
    result.slots.push_back(b.slots[static_cast<size_t>(other)]);
  }
  return result;
}

} // namespace temper::graph
