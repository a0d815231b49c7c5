// Functionalisation over recorded storages.
//
// 1. Each storage of the raw graph has one root, the value that it was first
//    seen with, and a version, counted up by every write. Each other value of
//    the storage is a view: it knows the raw op that made it and its parent.
// 2. Reading a raw value gives its functional value if that is of the
//    storage's present version. Else the root's is the storage's present
//    content, and a view's is its view op, emitted again on its parent's
//    present value.
// 3. A write to the root makes the result the storage's content. A write
//    through a view emits write_through on the root's present value, whose
//    result is the content. Either way all other values are stale.
// 4. Outputs and mutations are read at the end of the forward part, deliveries
//    at the end of their segment.
#include "passes/functionalise.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"
#include "passes/unsupported.h"
#include "passes/util.h"

namespace temper::passes {

namespace {

using graph::Delivery;
using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::ValueId;
using graph::Write;

// What is known of one storage of the raw graph.
struct Storage {
  ValueId root = kNoValue; // raw
  int32_t root_op = -1; // raw; -1 for an input
  int32_t version = 0;
  int32_t num_roots = 0; // inputs or results of one op that share it unseen
  int32_t input = -1; // the first graph input in it
  bool num_inputs_many = false; // several distinct input objects
  bool tangent = false; // `input` is a tangent
  bool output = false; // holds an output of the forward part
};

// What is known of one raw value.
struct Object {
  ValueId current = kNoValue; // functional
  int32_t version = -1;
  ValueId parent = kNoValue; // raw; kNoValue for a root
  int32_t defined_by = -1; // raw op; valid for views
  int32_t result = -1; // index into that op's results
};

class Functionaliser {
 public:
  explicit Functionaliser(const Graph& raw)
      : raw_(raw), objects_(raw.values.size()) {
    TEMPER_INTERNAL(raw.form == graph::Form::kRaw);
    out_.form = graph::Form::kFunctional;
    out_.objects = raw.objects;
    out_.slots = raw.slots;
    out_.tangent_outputs = raw.tangent_outputs;
  }

  Graph run() {
    for (const graph::Input& input : raw_.inputs) {
      add_input(input);
    }
    for (int32_t i = 0; i < raw_.num_forward_ops; ++i) {
      add_op(i);
    }
    end_forward();
    int32_t next = raw_.num_forward_ops;
    for (const graph::Segment& segment : raw_.segments) {
      TEMPER_INTERNAL(segment.first_op == next, "segments leave a gap");
      next = segment.end_op;
      add_segment(segment);
    }
    TEMPER_INTERNAL(
        next == static_cast<int32_t>(raw_.ops.size()),
        "ops after the last segment");
    return std::move(out_);
  }

 private:
  Storage& storage_of(ValueId value) {
    return storages_[raw_.values[index(value)].storage];
  }

  ValueId new_value(const graph::Type& type) {
    return passes::new_value(out_, type);
  }

  void add_input(const graph::Input& input) {
    graph::Input copy = input;
    copy.value = new_value(raw_.values[index(input.value)].type);
    Storage& storage = storage_of(input.value);
    if (storage.root == kNoValue) {
      storage.root = input.value;
      storage.input = static_cast<int32_t>(out_.inputs.size());
      storage.tangent = input.role == graph::Role::kTangent;
    } else {
      storage.num_inputs_many = true;
    }
    ++storage.num_roots;
    Object& object = objects_[index(input.value)];
    object.current = copy.value;
    object.version = 0;
    out_.inputs.push_back(std::move(copy));
  }

  // Step 2.
  ValueId read(ValueId value) {
    if (value == kNoValue) {
      return kNoValue;
    }
    Object& object = objects_[index(value)];
    TEMPER_INTERNAL(
        object.current != kNoValue, "value used before its definition");
    const Storage& storage = storage_of(value);
    if (object.version == storage.version) {
      return object.current;
    }
    // Stale roots exist only where several share a storage, and such a storage
    // is never written.
    TEMPER_INTERNAL(object.parent != kNoValue);
    const ValueId parent = read(object.parent);
    const Op& view = raw_.ops[index(object.defined_by)];
    Op again{view.op, {}, {}, {}};
    for (const Operand& operand : view.operands) {
      Operand mapped = operand;
      for_each_value(mapped, [&](ValueId& id) {
        id = id == object.parent ? parent : objects_[index(id)].current;
      });
      again.operands.push_back(std::move(mapped));
    }
    for (const ValueId sibling : view.results) {
      if (sibling == kNoValue ||
          objects_[index(sibling)].parent != object.parent) {
        again.results.push_back(kNoValue);
        continue;
      }
      Object& renewed = objects_[index(sibling)];
      renewed.current = new_value(raw_.values[index(sibling)].type);
      renewed.version = storage.version;
      again.results.push_back(renewed.current);
    }
    out_.ops.push_back(std::move(again));
    return object.current;
  }

  void add_op(int32_t raw_index) {
    const Op& op = raw_.ops[index(raw_index)];
    const ops::OpInfo& info = ops::info(op.op);
    if (info.changes_metadata) {
      throw Unsupported(
          graph::op_name(op.op) +
          " changes sizes, strides or storage of a tensor");
    }
    if (returns_operands(op)) {
      if (info.foreign) { // It may do something beside.
        throw Unsupported(
            graph::op_name(op.op) + " returns a tensor that it was given");
      }
      return;
    }
    Op copy{op.op, {}, {}, {}};
    for (const Operand& operand : op.operands) {
      Operand mapped = operand;
      for_each_value(mapped, [&](ValueId& id) { id = read(id); });
      copy.operands.push_back(std::move(mapped));
    }
    // The new contents, by raw value.
    std::vector<std::pair<ValueId, ValueId>> written;
    for (const Write& write : op.writes) {
      const ValueId target = written_value(op, write);
      if (target == kNoValue) {
        continue;
      }
      check_write(op, target, raw_index);
      for (const auto& [other, content] : written) {
        if (may_overlap(other, target)) {
          throw Unsupported(
              graph::op_name(op.op) + " may write to the same memory twice");
        }
      }
      const ValueId content = new_value(raw_.values[index(target)].type);
      copy.writes.push_back({write.operand, write.element, content});
      written.emplace_back(target, content);
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      copy.results.push_back(
          add_result(raw_index, static_cast<int32_t>(i), written));
    }
    out_.ops.push_back(std::move(copy));
    for (const auto& [target, content] : written) {
      commit(target, content);
    }
  }

  // True iff the op only returned tensors that it was given (`to` without
  // anything to do): the functional form needs no op for that.
  bool returns_operands(const Op& op) const {
    return op.writes.empty() && !op.results.empty() &&
        std::all_of(op.results.begin(), op.results.end(), [&](ValueId id) {
             return id != kNoValue && objects_[index(id)].current != kNoValue;
           });
  }

  // A result of a raw op: an operand that was written, an operand returned
  // unchanged, a view, or new memory.
  ValueId add_result(
      int32_t raw_index,
      int32_t result,
      const std::vector<std::pair<ValueId, ValueId>>& written) {
    const Op& op = raw_.ops[index(raw_index)];
    const ValueId value = op.results[index(result)];
    if (value == kNoValue) {
      return kNoValue;
    }
    for (const auto& [target, content] : written) {
      if (target == value) {
        return content;
      }
    }
    Object& object = objects_[index(value)];
    if (object.current != kNoValue) {
      // The op returned an operand without writing it (a call that turned out
      // to be a no-op): the functional form has no op for that.
      throw Unsupported(
          graph::op_name(op.op) + " returns a tensor that it was given");
    }
    Storage& storage = storage_of(value);
    const ops::OpInfo& info = ops::info(op.op);
    if (storage.root == kNoValue) {
      storage.root = value;
      storage.root_op = raw_index;
    } else {
      for (const Operand& operand : op.operands) {
        for_each_value(operand, [&](ValueId id) {
          if (object.parent == kNoValue &&
              raw_.values[index(id)].storage ==
                  raw_.values[index(value)].storage) {
            object.parent = id;
          }
        });
      }
      if (object.parent == kNoValue && storage.root_op != raw_index) {
        throw Unsupported(
            graph::op_name(op.op) + " returns memory that it was not given");
      }
      if (object.parent != kNoValue && info.alias == ops::Alias::kFresh) {
        throw Unsupported(
            graph::op_name(op.op) +
            " returns a view that its schema does not tell");
      }
      for (const auto& [target, content] : written) {
        if (object.parent != kNoValue &&
            raw_.values[index(target)].storage ==
                raw_.values[index(value)].storage) {
          throw Unsupported(
              graph::op_name(op.op) + " returns a view of what it writes");
        }
      }
    }
    if (object.parent == kNoValue) {
      ++storage.num_roots;
    }
    object.defined_by = raw_index;
    object.result = result;
    object.current = new_value(raw_.values[index(value)].type);
    object.version = storage.version;
    return object.current;
  }

  // What one op writes through two views of a memory has an order that the
  // functional form does not know. Results of one view op (split, unbind) do
  // not overlap.
  bool may_overlap(ValueId a, ValueId b) const {
    if (raw_.values[index(a)].storage != raw_.values[index(b)].storage) {
      return false;
    }
    const Object& x = objects_[index(a)];
    const Object& y = objects_[index(b)];
    return a == b || x.parent == kNoValue || x.parent != y.parent ||
        x.defined_by != y.defined_by;
  }

  void check_write(const Op& op, ValueId target, int32_t raw_index) {
    const Storage& storage = storage_of(target);
    if (storage.num_inputs_many) {
      throw Unsupported(
          graph::op_name(op.op) +
          " writes to memory that several inputs share" + named(storage));
    }
    if (storage.num_roots > 1) {
      throw Unsupported(
          graph::op_name(op.op) +
          " writes to memory that several results of one operator share");
    }
    if (raw_index >= raw_.num_forward_ops &&
        ((storage.input >= 0 && !storage.tangent) || storage.output)) {
      throw Unsupported(
          graph::op_name(op.op) +
          (storage.output ? " in the backward writes to an output"
                          : " in the backward writes to an input") +
          named(storage));
    }
  }

  std::string named(const Storage& storage) const {
    if (storage.input < 0 || out_.inputs[index(storage.input)].name.empty()) {
      return "";
    }
    return " ('" + out_.inputs[index(storage.input)].name + "')";
  }

  // Step 3.
  void commit(ValueId target, ValueId content) {
    Storage& storage = storage_of(target);
    Object& object = objects_[index(target)];
    Object& root = objects_[index(storage.root)];
    if (target == storage.root) {
      ++storage.version;
      root.current = content;
      root.version = storage.version;
      return;
    }
    // If the op wrote to another view of this memory too, `target` is stale
    // now: the region is named by a view of the present content.
    const ValueId base = root.current;
    const ValueId view = read(target);
    const ValueId result = new_value(raw_.values[index(storage.root)].type);
    Op through{ops::write_through(), {}, {result}, {}};
    for (const ValueId id : {base, view, content}) {
      through.operands.push_back(graph::value_operand(id));
    }
    out_.ops.push_back(std::move(through));
    ++storage.version;
    root.current = result;
    root.version = storage.version;
    TEMPER_INTERNAL(object.version != storage.version);
  }

  // Step 4.
  void end_forward() {
    for (const ValueId output : raw_.outputs) {
      out_.outputs.push_back(read(output));
      if (output != kNoValue) {
        storage_of(output).output = true;
      }
    }
    std::vector<bool> listed(raw_.inputs.size());
    for (const graph::Mutation& mutation : raw_.mutations) {
      const graph::Input& input = raw_.inputs[index(mutation.input)];
      listed[index(mutation.input)] = true;
      out_.mutations.push_back(
          {mutation.input,
           objects_[index(input.value)].current,
           mutation.as_output});
      check_returned(mutation, input);
    }
    for (size_t i = 0; i < raw_.inputs.size(); ++i) {
      const Storage& storage = storage_of(raw_.inputs[i].value);
      TEMPER_INTERNAL(
          storage.version == 0 || listed[i],
          "input ",
          raw_.inputs[i].name,
          " is written but not listed as mutated");
    }
    out_.num_forward_ops = static_cast<int32_t>(out_.ops.size());
  }

  // An output that lives in an input which the caller writes would be cut off
  // from it.
  void check_returned(
      const graph::Mutation& mutation,
      const graph::Input& input) {
    if (!mutation.as_output) {
      return;
    }
    for (const ValueId output : raw_.outputs) {
      if (output != kNoValue && output != input.value &&
          raw_.values[index(output)].storage ==
              raw_.values[index(input.value)].storage) {
        throw Unsupported(
            "an output is a view of '" + input.name +
            "', which requires grad and is written in place");
      }
    }
  }

  void add_segment(const graph::Segment& segment) {
    graph::Segment copy = segment;
    copy.first_op = static_cast<int32_t>(out_.ops.size());
    for (int32_t i = segment.first_op; i < segment.end_op; ++i) {
      add_op(i);
    }
    for (Delivery& delivery : copy.deliveries) {
      delivery.value = read(delivery.value);
    }
    copy.end_op = static_cast<int32_t>(out_.ops.size());
    out_.segments.push_back(std::move(copy));
  }

  const Graph& raw_;
  Graph out_;
  std::vector<Object> objects_; // by raw value
  std::unordered_map<int32_t, Storage> storages_; // by raw storage
};

} // namespace

Graph functionalise(const Graph& raw) {
  return Functionaliser(raw).run();
}

} // namespace temper::passes
