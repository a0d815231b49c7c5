// Which value gets which memory.
//
// 1. `last_read` of a value: the last op that needs its content. The base and
//    the view operand of a write_through need none where the write happened in
//    place.
// 2. In order of the ops, each value gets an object (a tensor of the raw graph)
//    in some memory. A view of an object lives in that object's memory; the
//    same view of the same object is the same object.
// 3. A write may happen in place iff its memory is writable and no value that
//    lives there is read later. Writable is what the program made itself, and
//    an input on the chain of writes that leads to its final content.
// 4. Otherwise the operand is copied first. If the write goes through a view,
//    the view's base is copied as a whole and the views are taken of the copy,
//    so that the write_through that follows costs nothing.
// 5. A write_through whose content was written in place is its base's object.
//    One whose content came from elsewhere becomes a copy_.
// 6. At the end, inputs whose final content lives elsewhere are written by
//    copy_; outputs that see the old content are copied before that.
#include "passes/reinplace.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"
#include "passes/liveness.h"
#include "passes/unsupported.h"
#include "passes/util.h"

namespace temper::passes {

namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::ValueId;
using graph::Write;

// A piece of memory: the storage of a raw value.
struct Memory {
  bool writable = true;
  int32_t input = -1; // the graph input that brought it, if any
  std::vector<ValueId> values; // functional values that live here
};

class Reinplacer {
 public:
  explicit Reinplacer(const Graph& in)
      : in_(in),
        objects_(in.values.size(), kNoValue),
        last_read_(last_reads(in)),
        is_output_(in.values.size()),
        definitions_(definitions(in)),
        parents_(view_parents(in)),
        has_absolute_view_(has_absolute_view(in)) {
    TEMPER_INTERNAL(in.form == graph::Form::kFunctional);
    TEMPER_INTERNAL(in.segments.empty(), "partition comes first");
    out_.form = graph::Form::kRaw;
    out_.objects = in.objects;
    out_.slots = in.slots;
  }

  Graph run() {
    find_outputs();
    for (size_t i = 0; i < in_.inputs.size(); ++i) {
      add_input(static_cast<int32_t>(i));
    }
    for (const graph::Mutation& mutation : in_.mutations) {
      const auto chain = final_writes(in_, definitions_, mutation);
      if (chain && !mutation.as_output) {
        chain_.insert(chain->begin(), chain->end());
        const ValueId input = in_.inputs[index(mutation.input)].value;
        memories_[index(memory_of(input))].writable = true;
      }
    }
    for (size_t i = 0; i < in_.ops.size(); ++i) {
      now_ = static_cast<int32_t>(i);
      const Op& op = in_.ops[i];
      if (ops::is_write_through(op.op)) {
        add_write_through(op);
      } else if (is_plain_view(op)) {
        add_view(op);
      } else {
        add_op(op);
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  void find_outputs() {
    for (size_t i = 0; i < in_.ops.size(); ++i) {
      const Op& op = in_.ops[i];
      if (ops::is_write_through(op.op)) {
        through_[op.operands[2].value] = static_cast<int32_t>(i);
      }
    }
    for (const ValueId id : in_.outputs) {
      if (id != kNoValue) {
        is_output_[index(id)] = true;
      }
    }
    for (const graph::Mutation& mutation : in_.mutations) {
      if (mutation.as_output) {
        is_output_[index(mutation.value)] = true;
      }
    }
  }

  int32_t new_memory(bool writable = true) {
    memories_.emplace_back().writable = writable;
    return static_cast<int32_t>(memories_.size() - 1);
  }

  ValueId new_object(const graph::Type& type, int32_t memory) {
    out_.values.push_back({type, memory});
    object_is_output_.push_back(false);
    views_.emplace_back();
    return static_cast<ValueId>(out_.values.size() - 1);
  }

  int32_t memory_of(ValueId value) const {
    return out_.values[index(objects_[index(value)])].storage;
  }

  void assign(ValueId value, ValueId object) {
    objects_[index(value)] = object;
    memories_[index(out_.values[index(object)].storage)].values.push_back(
        value);
    if (is_output_[index(value)]) {
      object_is_output_[index(object)] = true;
    }
  }

  void add_input(int32_t i) {
    const graph::Input& input = in_.inputs[index(i)];
    const int32_t memory = new_memory(false);
    memories_[index(memory)].input = i;
    assign(
        input.value, new_object(in_.values[index(input.value)].type, memory));
    out_.inputs.push_back(input);
    out_.inputs.back().value = objects_[index(input.value)];
  }

  // Step 3. `content` would replace what `target` sees, now.
  bool may_write(ValueId target, ValueId content) const {
    const Memory& memory = memories_[index(memory_of(target))];
    if (!memory.writable || (memory.input >= 0 && !chain_.count(content))) {
      return false;
    }
    return std::none_of(
        memory.values.begin(), memory.values.end(), [&](ValueId value) {
          return last_read_[index(value)] > now_;
        });
  }

  static bool is_plain_view(const Op& op) {
    const ops::OpInfo& info = ops::info(op.op);
    return info.alias == ops::Alias::kView && op.writes.empty() &&
        op.operands[index(info.alias_operand)].kind == Operand::Kind::kValue;
  }

  Operand map(const Operand& operand) const {
    Operand mapped = operand;
    for_each_value(mapped, [&](ValueId& id) { id = objects_[index(id)]; });
    return mapped;
  }

  Op map_operands(const Op& op) const {
    Op mapped{op.op, {}, {}, {}};
    mapped.operands.reserve(op.operands.size());
    for (const Operand& operand : op.operands) {
      mapped.operands.push_back(map(operand));
    }
    return mapped;
  }

  // Step 2, views. Takes the view on the objects in `mapped`.
  void add_view(const Op& op) {
    Op mapped = map_operands(op);
    const ValueId parent =
        mapped.operands[index(ops::info(op.op).alias_operand)].value;
    for (const int32_t at : views_[index(parent)]) {
      if (same_call(out_.ops[index(at)], mapped) && may_merge(op, at)) {
        for (size_t i = 0; i < op.results.size(); ++i) {
          if (op.results[i] != kNoValue) {
            ValueId& object = out_.ops[index(at)].results[i];
            if (object == kNoValue) {
              object = new_object_of(op.results[i], parent);
            }
            assign(op.results[i], out_.ops[index(at)].results[i]);
          }
        }
        return;
      }
    }
    for (const ValueId id : op.results) {
      mapped.results.push_back(
          id == kNoValue ? kNoValue : new_object_of(id, parent));
      if (id != kNoValue) {
        assign(id, mapped.results.back());
      }
    }
    views_[index(parent)].push_back(static_cast<int32_t>(out_.ops.size()));
    out_.ops.push_back(std::move(mapped));
  }

  ValueId new_object_of(ValueId value, ValueId parent) {
    const int32_t memory = out_.values[index(parent)].storage;
    return new_object(in_.values[index(value)].type, memory);
  }

  bool may_merge(const Op& op, int32_t at) const {
    const std::vector<ValueId>& there = out_.ops[index(at)].results;
    for (size_t i = 0; i < op.results.size(); ++i) {
      if (op.results[i] != kNoValue && there[i] != kNoValue &&
          is_output_[index(op.results[i])] &&
          object_is_output_[index(there[i])]) {
        return false;
      }
    }
    return there.size() == op.results.size();
  }

  void add_op(const Op& op) {
    const ops::OpInfo& info = ops::info(op.op);
    Op mapped = map_operands(op);
    for (const Write& write : op.writes) {
      const ValueId target = written_value(op, write);
      ValueId object = objects_[index(target)];
      if (!may_write(target, write.result)) {
        check_overlap(op, target);
        object = copy_for_write(target, write.result);
        // Everywhere in this op: x.copy_(x) has to stay a copy onto itself.
        for (size_t i = 0; i < op.operands.size(); ++i) {
          replace(op.operands[i], mapped.operands[i], target, object);
        }
      }
      mapped.writes.push_back({write.operand, write.element, kNoValue});
      written_.emplace_back(write.result, object);
    }
    // Assigned late: the values of this op are no reason against its writes.
    for (const auto& [value, object] : written_) {
      assign(value, object);
    }
    written_.clear();
    for (const ValueId id : op.results) {
      if (id != kNoValue && objects_[index(id)] == kNoValue) {
        int32_t memory = -1;
        if (info.alias == ops::Alias::kFresh) {
          memory = new_memory();
        } else {
          memory = alias_memory(op, info);
        }
        assign(id, new_object(in_.values[index(id)].type, memory));
      }
      mapped.results.push_back(id == kNoValue ? kNoValue : objects_[index(id)]);
    }
    out_.ops.push_back(std::move(mapped));
  }

  // In place, what an op reads of the memory that it writes depends on the
  // order of its elements; a copy would change that.
  void check_overlap(const Op& op, ValueId target) const {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const bool written = std::any_of(
          op.writes.begin(), op.writes.end(), [&](const Write& write) {
            return index(write.operand) == i;
          });
      for_each_value(op.operands[i], [&](ValueId id) {
        if (!written && id != target && memory_of(id) == memory_of(target)) {
          throw Unsupported(
              graph::op_name(op.op) +
              " reads memory that it writes, and has to write to a copy");
        }
      });
    }
  }

  // Makes `mapped` have `object` where `operand` has `value`.
  static void replace(
      const Operand& operand,
      Operand& mapped,
      ValueId value,
      ValueId object) {
    if (operand.value == value) {
      mapped.value = object;
    }
    for (size_t e = 0; e < operand.values.size(); ++e) {
      if (operand.values[e] == value) {
        mapped.values[e] = object;
      }
    }
  }

  // The memory of a result that may or does share that of an operand.
  int32_t alias_memory(const Op& op, const ops::OpInfo& info) {
    int32_t memory = -1;
    for_each_value(op.operands[index(info.alias_operand)], [&](ValueId id) {
      memory = memory_of(id);
    });
    if (memory < 0) {
      return new_memory();
    }
    if (info.alias == ops::Alias::kMaybe) {
      memories_[index(memory)].writable = false;
    }
    return memory;
  }

  // Step 4.
  ValueId copy_for_write(ValueId target, ValueId content) {
    const auto through = through_.find(content);
    if (through != through_.end()) {
      const Op& op = in_.ops[index(through->second)];
      const ValueId base = op.operands[0].value;
      if (op.operands[1].value == target && objects_[index(base)] != kNoValue) {
        const ValueId copy = emit_copy(base);
        copied_base_[content] = copy;
        return take_views(base, target, copy);
      }
    }
    return emit_copy(target);
  }

  ValueId emit_copy(ValueId value) {
    Op op{ops::copy_memory(), {}, {}, {}};
    op.operands.push_back(graph::value_operand(objects_[index(value)]));
    op.operands.push_back(graph::constant_operand(has_absolute_view_));
    const ValueId copy =
        new_object(in_.values[index(value)].type, new_memory());
    op.results.push_back(copy);
    out_.ops.push_back(std::move(op));
    return copy;
  }

  // The views from `base` (excluded) to `view`, innermost first.
  std::vector<ValueId> view_chain(ValueId base, ValueId view) const {
    std::vector<ValueId> chain;
    for (ValueId id = view; id != base; id = parents_[index(id)]) {
      TEMPER_INTERNAL(
          id != kNoValue, "write_through with a view that is none of its base");
      chain.push_back(id);
    }
    std::reverse(chain.begin(), chain.end());
    return chain;
  }

  // The object that sees of `copy` what `view` sees of `base`.
  ValueId take_views(ValueId base, ValueId view, ValueId copy) {
    ValueId parent = copy;
    for (const ValueId id : view_chain(base, view)) {
      const Op& op = in_.ops[index(definitions_[index(id)])];
      Op again = map_operands(op);
      again.operands[index(ops::info(op.op).alias_operand)].value = parent;
      const ValueId object = new_object_of(id, parent);
      for (const ValueId result : op.results) {
        again.results.push_back(result == id ? object : kNoValue);
      }
      views_[index(parent)].push_back(static_cast<int32_t>(out_.ops.size()));
      out_.ops.push_back(std::move(again));
      parent = object;
    }
    return parent;
  }

  // Step 5.
  void add_write_through(const Op& op) {
    const ValueId base = op.operands[0].value;
    const ValueId view = op.operands[1].value;
    const ValueId content = op.operands[2].value;
    const ValueId result = op.results[0];
    if (const auto copied = copied_base_.find(content);
        copied != copied_base_.end()) {
      assign(result, copied->second);
      return;
    }
    if (objects_[index(content)] == objects_[index(view)] &&
        memory_of(content) == memory_of(base)) {
      assign(result, objects_[index(base)]);
      return;
    }
    ValueId base_object = objects_[index(base)];
    ValueId view_object = objects_[index(view)];
    if (memory_of(content) == memory_of(base) || !may_write(base, result)) {
      base_object = emit_copy(base);
      view_object = take_views(base, view, base_object);
    }
    emit_copy_into(view_object, objects_[index(content)]);
    assign(result, base_object);
  }

  void emit_copy_into(ValueId target, ValueId source) {
    Op op{graph::find_op("aten::copy_"), {}, {target}, {{0, -1, kNoValue}}};
    op.operands.push_back(graph::value_operand(target));
    op.operands.push_back(graph::value_operand(source));
    op.operands.push_back(graph::constant_operand(false));
    out_.ops.push_back(std::move(op));
  }

  // Step 6.
  void finish() {
    now_ = static_cast<int32_t>(in_.ops.size());
    std::vector<ValueId> outputs = in_.outputs;
    std::unordered_map<int32_t, ValueId> rewritten; // memory -> final content
    for (const graph::Mutation& mutation : in_.mutations) {
      const ValueId input = in_.inputs[index(mutation.input)].value;
      if (mutation.as_output) {
        outputs.push_back(mutation.value);
        continue;
      }
      out_.mutations.push_back({mutation.input, kNoValue, false});
      if (objects_[index(mutation.value)] != objects_[index(input)]) {
        rewritten.emplace(memory_of(input), mutation.value);
      }
    }
    std::unordered_map<ValueId, ValueId> kept;
    const auto keep = [&](ValueId value) {
      if (value == kNoValue) {
        return kNoValue;
      }
      const auto found = rewritten.find(memory_of(value));
      if (found == rewritten.end() || found->second == value) {
        return objects_[index(value)];
      }
      const auto [entry, added] = kept.emplace(value, kNoValue);
      if (added) {
        entry->second = emit_copy(value);
      }
      return entry->second;
    };
    for (const ValueId value : outputs) {
      out_.outputs.push_back(keep(value));
    }
    std::vector<std::pair<ValueId, ValueId>> copies;
    for (const graph::Mutation& mutation : in_.mutations) {
      const ValueId input = in_.inputs[index(mutation.input)].value;
      if (!mutation.as_output &&
          objects_[index(mutation.value)] != objects_[index(input)]) {
        copies.emplace_back(objects_[index(input)], keep(mutation.value));
      }
    }
    for (const auto& [target, source] : copies) {
      emit_copy_into(target, source);
    }
    out_.num_forward_ops = static_cast<int32_t>(out_.ops.size());
  }

  const Graph& in_;
  Graph out_;
  std::vector<ValueId> objects_; // functional value -> raw value
  std::vector<int32_t> last_read_; // by functional value
  std::vector<bool> is_output_; // by functional value
  std::vector<int32_t> definitions_;
  std::vector<ValueId> parents_;
  const bool has_absolute_view_; // copies keep offsets for their sake
  std::vector<Memory> memories_; // by storage of a raw value
  std::vector<bool> object_is_output_; // by raw value
  std::vector<std::vector<int32_t>> views_; // by raw value: view ops on it
  std::unordered_map<ValueId, int32_t> through_; // content -> write_through
  std::unordered_map<ValueId, ValueId> copied_base_; // content -> raw value
  std::unordered_set<ValueId> chain_;
  std::vector<std::pair<ValueId, ValueId>> written_; // of the present op
  int32_t now_ = 0;
};

} // namespace

Graph reinplace(const Graph& functional) {
  return Reinplacer(functional).run();
}

} // namespace temper::passes
