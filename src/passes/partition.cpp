// Partition of a joint graph.
//
// 1. Find the forward values that the backward reads, and from these, through
//    operators that may run again (views, and cheap ones if asked for), all
//    values that could be saved instead.
// 2. Give each a cost: nothing for what the user holds anyway and the recorded
//    backward read (inputs in their final content, outputs), the bytes of its
//    memory for an intermediate, a copy's for what else the user can reach. A
//    view of an input or output can't be saved: it is taken again of that.
// 3. The minimum cut is what is saved.
// 4. Each segment gets what it reads: its own ops' results, tangents, saved
//    values, values carried from earlier segments, or ops repeated just before
//    their use.
#include "passes/partition.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "graph/build.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"
#include "passes/min_cut.h"
#include "passes/util.h"

namespace temper::passes {

namespace {

using graph::Delivery;
using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::Role;
using graph::ValueId;

constexpr int64_t kHeldAnyway = 1;

class Partitioner {
 public:
  Partitioner(const Graph& joint, const PartitionOptions& options)
      : in_(joint),
        options_(options),
        definitions_(definitions(joint)),
        parents_(view_parents(joint)),
        input_of_(joint.values.size(), -1),
        segment_of_(joint.values.size(), -1),
        saved_(joint.values.size(), -1) {
    TEMPER_INTERNAL(joint.form == graph::Form::kFunctional);
  }

  Partition run() {
    locate_values();
    if (!in_.segments.empty()) {
      choose_saved();
    }
    make_forward();
    for (size_t s = 0; s < in_.segments.size(); ++s) {
      make_segment(static_cast<int32_t>(s));
    }
    add_carried_out();
    return std::move(out_);
  }

 private:
  bool in_forward(ValueId id) const {
    return segment_of_[index(id)] < 0;
  }

  // In which segment each value comes to be; -1: in the forward.
  void locate_values() {
    for (size_t s = 0; s < in_.segments.size(); ++s) {
      const graph::Segment& segment = in_.segments[s];
      for (const int32_t tangent : segment.tangents) {
        segment_of_[index(in_.inputs[index(tangent)].value)] =
            static_cast<int32_t>(s);
      }
      for (int32_t i = segment.first_op; i < segment.end_op; ++i) {
        const Op& op = in_.ops[index(i)];
        const auto see = [&](ValueId id) {
          if (id != kNoValue) {
            segment_of_[index(id)] = static_cast<int32_t>(s);
          }
        };
        std::for_each(op.results.begin(), op.results.end(), see);
        for (const graph::Write& write : op.writes) {
          see(write.result);
        }
      }
    }
    for (size_t i = 0; i < in_.inputs.size(); ++i) {
      input_of_[index(in_.inputs[i].value)] = static_cast<int32_t>(i);
    }
    // What an input holds when the backward runs.
    held_.resize(in_.inputs.size());
    for (size_t i = 0; i < in_.inputs.size(); ++i) {
      held_[i] = in_.inputs[i].value;
    }
    for (const graph::Mutation& mutation : in_.mutations) {
      held_[index(mutation.input)] = mutation.value;
    }
    for (size_t i = 0; i < held_.size(); ++i) {
      if (in_.inputs[i].role != Role::kTangent) {
        held_by_.emplace(held_[i], static_cast<int32_t>(i));
      }
    }
    for (size_t i = 0; i < in_.outputs.size(); ++i) {
      if (in_.outputs[i] != kNoValue) {
        output_of_.emplace(in_.outputs[i], static_cast<int32_t>(i));
        output_roots_.emplace(root(in_.outputs[i]), static_cast<int32_t>(i));
      }
    }
  }

  ValueId root(ValueId id) const {
    while (parents_[index(id)] != kNoValue) {
      id = parents_[index(id)];
    }
    return id;
  }

  // The op that may run again in the backward to give this value, or null.
  const Op* repeatable(ValueId id) const {
    const int32_t at = definitions_[index(id)];
    if (at < 0) {
      return nullptr;
    }
    const Op& op = in_.ops[index(at)];
    const ops::OpInfo& info = ops::info(op.op);
    if (!op.writes.empty() || info.rng || info.impure) {
      return nullptr;
    }
    if (parents_[index(id)] != kNoValue) {
      return &op;
    }
    const bool cheap = options_.recompute_cheap && info.cheap;
    return cheap && in_forward(id) ? &op : nullptr;
  }

  template <class Visit>
  void for_each_backward_use(Visit visit) const {
    for (const graph::Segment& segment : in_.segments) {
      for (int32_t i = segment.first_op; i < segment.end_op; ++i) {
        for (const Operand& operand : in_.ops[index(i)].operands) {
          for_each_value(operand, visit);
        }
      }
      for (const Delivery& delivery : segment.deliveries) {
        if (delivery.value != kNoValue) {
          visit(delivery.value);
        }
      }
    }
  }

  // Steps 1 to 3.
  void choose_saved() {
    std::unordered_map<ValueId, int32_t> vertex;
    std::vector<ValueId> values;
    CutProblem problem;
    const auto vertex_of = [&](ValueId id) {
      const auto [entry, added] =
          vertex.emplace(id, static_cast<int32_t>(values.size()));
      if (added) {
        values.push_back(id);
      }
      return entry->second;
    };
    for_each_backward_use([&](ValueId id) {
      if (in_forward(id)) {
        read_.emplace(root(id), true);
        read_itself_.insert(id);
        const size_t before = values.size();
        const int32_t v = vertex_of(id);
        if (before != values.size()) {
          problem.needed.push_back(v);
        }
      }
    });
    for (size_t v = 0; v < values.size(); ++v) { // grows
      const ValueId id = values[v];
      problem.costs.push_back(cost(id));
      const Op* op = held_by_.count(id) ? nullptr : repeatable(id);
      if (op == nullptr) {
        problem.given.push_back(static_cast<int32_t>(v));
        continue;
      }
      for (const Operand& operand : op->operands) {
        for_each_value(operand, [&](ValueId from) {
          problem.edges.emplace_back(vertex_of(from), static_cast<int32_t>(v));
        });
      }
    }
    std::vector<int32_t> cut = min_cut(problem);
    std::sort(cut.begin(), cut.end(), [&](int32_t a, int32_t b) {
      return values[index(a)] < values[index(b)];
    });
    for (const int32_t v : cut) {
      saved_[index(values[index(v)])] = static_cast<int32_t>(out_.saved.size());
      saved_values_.push_back(values[index(v)]);
      out_.saved.push_back(how_saved(values[index(v)]));
    }
  }

  int64_t bytes(ValueId id) const {
    const graph::Type& type = in_.values[index(root(id))].type;
    auto size = static_cast<int64_t>(c10::elementSize(type.dtype));
    for (const graph::Dim& dim : type.sizes) {
      size *= std::max<int64_t>(dim.size, 1);
    }
    return std::min(size, CutProblem::kNever >> 20U) * 4;
  }

  // Step 2.
  int64_t cost(ValueId id) const {
    const bool was_read = read_.count(root(id)) != 0;
    if (was_read && (held_by_.count(id) || output_of_.count(id))) {
      return kHeldAnyway;
    }
    for (ValueId up = id; up != kNoValue; up = parents_[index(up)]) {
      // A view of what is held.
      if (up != id && was_read &&
          (held_by_.count(up) || output_of_.count(up))) {
        return CutProblem::kNever;
      }
    }
    // An intermediate; a private copy costs time beside its bytes.
    return needs_copy(id) ? 2 * bytes(id) : bytes(id);
  }

  // The user could change it before the backward reads it, and eager's backward
  // would not have seen that.
  bool needs_copy(ValueId id) const {
    const ValueId base = root(id);
    if (input_of_[index(base)] >= 0) {
      return true; // an input that was not read, or its content of before
    }
    const bool reachable = held_by_.count(base) || output_roots_.count(base);
    return reachable && read_.count(base) == 0;
  }

  SavedValue how_saved(ValueId id) const {
    const bool was_read = read_.count(root(id)) != 0;
    if (was_read) {
      if (const auto held = held_by_.find(id); held != held_by_.end()) {
        return {
            SavedValue::Kind::kInput,
            held->second,
            -1,
            !read_itself_.contains(id)};
      }
      if (const auto out = output_of_.find(id); out != output_of_.end()) {
        return {SavedValue::Kind::kOutput, out->second, -1};
      }
    }
    SavedValue result;
    const auto shared = output_roots_.find(root(id));
    if (shared != output_roots_.end() && !needs_copy(id)) {
      result.shares_output = shared->second;
    }
    return result; // the index follows in make_forward
  }

  void make_forward() {
    Graph& forward = out_.forward;
    forward.form = graph::Form::kFunctional;
    forward.values = in_.values;
    forward.objects = in_.objects;
    forward.slots = in_.slots;
    std::vector<int32_t> moved(in_.inputs.size(), -1);
    for (size_t i = 0; i < in_.inputs.size(); ++i) {
      if (in_.inputs[i].role != Role::kTangent) {
        moved[i] = static_cast<int32_t>(forward.inputs.size());
        forward.inputs.push_back(in_.inputs[i]);
      }
    }
    // Copies of inputs come first: their content is that of the entry.
    std::unordered_map<ValueId, ValueId> copies;
    for (const ValueId id : saved_values_) {
      if (!is_private(id) || !needs_copy(id)) {
        continue;
      }
      if (input_of_[index(id)] >= 0) {
        copies.emplace(id, add_copy(forward, id));
      }
    }
    forward.ops.insert(
        forward.ops.end(),
        in_.ops.begin(),
        in_.ops.begin() + in_.num_forward_ops);
    forward.outputs = in_.outputs;
    out_.num_outputs = static_cast<int32_t>(in_.outputs.size());
    for (graph::Mutation mutation : in_.mutations) {
      if (mutation.as_output) {
        forward.outputs.push_back(mutation.value);
      } else {
        mutation.input = moved[index(mutation.input)];
        forward.mutations.push_back(mutation);
      }
    }
    for (const ValueId id : saved_values_) {
      if (!is_private(id)) {
        continue;
      }
      SavedValue& saved = out_.saved[index(saved_[index(id)])];
      saved.index = static_cast<int32_t>(forward.outputs.size());
      if (needs_copy(id) && !copies.count(id)) {
        copies.emplace(id, add_copy(forward, id));
      }
      const auto copy = copies.find(id);
      forward.outputs.push_back(copy == copies.end() ? id : copy->second);
    }
    forward.num_forward_ops = static_cast<int32_t>(forward.ops.size());
  }

  bool is_private(ValueId id) const {
    return out_.saved[index(saved_[index(id)])].kind ==
        SavedValue::Kind::kPrivate;
  }

  ValueId add_copy(Graph& forward, ValueId id) const {
    const ValueId copy = new_value(forward, in_.values[index(id)].type);
    forward.ops.push_back(
        {ops::copy_memory(),
         {graph::value_operand(id),
          graph::constant_operand(has_absolute_view(in_))},
         {copy},
         {}});
    return copy;
  }

  // Step 4. The state of the segment graph in the making.
  struct Making {
    int32_t number;
    Graph graph;
    std::unordered_map<ValueId, ValueId> values; // joint -> segment graph
    std::map<int32_t, ValueId> saved; // by number, ascending
    std::map<int32_t, ValueId> carried;
  };

  void make_segment(int32_t number) {
    const graph::Segment& segment = in_.segments[index(number)];
    Making making;
    making.number = number;
    Graph& graph = making.graph;
    graph.form = graph::Form::kFunctional;
    graph.objects = in_.objects;
    graph.slots = in_.slots;
    for (const int32_t tangent : segment.tangents) {
      const ValueId id = in_.inputs[index(tangent)].value;
      making.values.emplace(id, new_value(graph, in_.values[index(id)].type));
    }
    for (int32_t i = segment.first_op; i < segment.end_op; ++i) {
      add_op(making, in_.ops[index(i)]);
    }
    for (const Delivery& delivery : segment.deliveries) {
      graph.outputs.push_back(
          delivery.value == kNoValue ? kNoValue
                                     : resolve(making, delivery.value));
    }
    SegmentGraph& result = out_.segments.emplace_back();
    const auto add_input = [&](ValueId id, Role role, std::string name) {
      graph.inputs.push_back({id, role, std::move(name)});
    };
    for (const auto& [saved, id] : making.saved) {
      result.saved.push_back(saved);
      add_input(id, Role::kSaved, "saved " + std::to_string(saved));
    }
    for (const int32_t tangent : segment.tangents) {
      const graph::Input& input = in_.inputs[index(tangent)];
      add_input(making.values.at(input.value), Role::kTangent, input.name);
    }
    for (const auto& [carried, id] : making.carried) {
      result.carried_in.push_back(carried);
      add_input(id, Role::kCarried, "carried " + std::to_string(carried));
    }
    graph.num_forward_ops = static_cast<int32_t>(graph.ops.size());
    result.graph = std::move(graph);
    segment_values_.push_back(std::move(making.values));
  }

  void add_op(Making& making, const Op& op) {
    Op mapped = op;
    for (Operand& operand : mapped.operands) {
      for_each_value(operand, [&](ValueId& id) { id = resolve(making, id); });
    }
    for (graph::Write& write : mapped.writes) {
      if (write.result != kNoValue) {
        write.result = define(making, write.result);
      }
    }
    for (ValueId& id : mapped.results) {
      if (id != kNoValue) {
        id = define(making, id);
      }
    }
    making.graph.ops.push_back(std::move(mapped));
  }

  ValueId define(Making& making, ValueId id) {
    ValueId& mapped = making.values.emplace(id, kNoValue).first->second;
    if (mapped == kNoValue) {
      mapped = new_value(making.graph, in_.values[index(id)].type);
    }
    return mapped;
  }

  ValueId resolve(Making& making, ValueId id) {
    if (const auto known = making.values.find(id);
        known != making.values.end()) {
      return known->second;
    }
    if (saved_[index(id)] >= 0) {
      const ValueId mapped = define(making, id);
      making.saved.emplace(saved_[index(id)], mapped);
      return mapped;
    }
    if (const Op* op = repeatable(id); op != nullptr) {
      Op again = *op;
      for (ValueId& result : again.results) {
        // What is there already is not defined twice.
        result = making.values.count(result) ? kNoValue : result;
      }
      add_op(making, again);
      return making.values.at(id);
    }
    const int32_t from = segment_of_[index(id)];
    TEMPER_INTERNAL(
        from >= 0 && from < making.number,
        "%",
        id,
        " is neither saved nor carried");
    const auto [entry, added] = carried_.emplace(id, out_.num_carried);
    if (added) {
      ++out_.num_carried;
      carried_values_.push_back(id);
    }
    const ValueId mapped = define(making, id);
    making.carried.emplace(entry->second, mapped);
    return mapped;
  }

  void add_carried_out() {
    for (size_t c = 0; c < carried_values_.size(); ++c) {
      const ValueId id = carried_values_[c];
      const size_t from = index(segment_of_[index(id)]);
      out_.segments[from].carried_out.push_back(static_cast<int32_t>(c));
      out_.segments[from].graph.outputs.push_back(segment_values_[from].at(id));
    }
  }

  const Graph& in_;
  const PartitionOptions options_;
  Partition out_;
  std::vector<int32_t> definitions_;
  std::vector<ValueId> parents_;
  std::vector<int32_t> input_of_; // value -> input, or -1
  std::vector<int32_t> segment_of_;
  std::vector<int32_t> saved_; // value -> number, or -1
  std::vector<ValueId> saved_values_;
  std::vector<ValueId> held_; // by input: its content at the backward
  std::unordered_map<ValueId, int32_t> held_by_; // content -> input
  std::unordered_map<ValueId, int32_t> output_of_;
  std::unordered_map<ValueId, int32_t> output_roots_; // root -> output
  std::unordered_map<ValueId, bool> read_; // roots that the backward reads
  std::unordered_set<ValueId> read_itself_; // and not only views of it
  std::unordered_map<ValueId, int32_t> carried_;
  std::vector<ValueId> carried_values_;
  std::vector<std::unordered_map<ValueId, ValueId>> segment_values_;
};

} // namespace

Partition partition(const Graph& joint, const PartitionOptions& options) {
  return Partitioner(joint, options).run();
}

} // namespace temper::passes
