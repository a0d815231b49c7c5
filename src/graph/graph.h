// The graph IR: typed values, ops of the dispatcher, slots, inputs by role.
//
// One `Graph` type serves three forms:
//  - raw: what the recorder saw. A value is a tensor *object* living in a
//    storage; ops may write to storages, views share them, and an in-place op
//    returns the value it was given.
//  - functional: SSA. A write gives a new value (`Op::writes`), views are pure
//    reads, storages are gone; writes to graph inputs are `Graph::mutations`.
//  - either of them with a backward part (a joint graph): ops from
//    `num_forward_ops` on, grouped in `segments`.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace temper::graph {

/// Index into `Graph::values`.
using ValueId = int32_t;
/// An undefined tensor (a None operand, an undefined result).
constexpr ValueId kNoValue = -1;

/// One dimension of a type.
struct Dim {
  enum class Kind : uint8_t {
    kConst, ///< Part of the skeleton: 0, 1, or a size that a parameter fixes.
    kSlot, ///< A size of an argument: `slot` indexes the slot table.
    kAny, ///< A run-time size that no slot names (an intermediate's).
  };
  Kind kind = Kind::kAny;
  int32_t slot = -1; ///< Valid iff kind is kSlot.
  int64_t size = 0; ///< kConst: the size. Else the size that was seen: a hint.

  bool operator==(const Dim&) const = default;
};

/// The type of a tensor value.
struct Type {
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Device device = c10::kCPU;
  std::vector<Dim> sizes;
  /// Strides seen, in elements: a hint; the skeleton has only their order.
  std::vector<int64_t> strides;
  bool conj = false; ///< The conjugate bit.
  bool neg = false; ///< The negative bit.
};

/// A tensor value.
struct Value {
  Type type;
  /// Raw form: the storage it lives in (an arbitrary number, equal for values
  /// that share memory). Functional form: -1.
  int32_t storage = -1;
};

/// Where a graph input comes from. Names are for people: never compared.
enum class Role : uint8_t {
  kArgument, ///< A tensor argument of the call.
  kParameter, ///< A registered parameter.
  kBuffer, ///< A registered buffer.
  kField, ///< An unregistered tensor field of a watched module or closure.
  kCaptured, ///< Any other reachable tensor.
  kTangent, ///< The gradient of an output: backward part only.
  kSaved, ///< After partition: a value that the forward program saved.
  kCarried, ///< After partition: a value from an earlier backward segment.
};

struct Input {
  ValueId value = kNoValue;
  Role role = Role::kArgument;
  std::string name; ///< e.g. "layers.0.weight", "x"; not part of the skeleton.
};

/// One argument of an op, in the order of its schema.
struct Operand {
  enum class Kind : uint8_t {
    kNone, ///< None, or an undefined tensor.
    kValue, ///< A tensor: `value`.
    kValueList, ///< A tensor list: `values`, kNoValue where undefined.
    kConstant, ///< Structure: `constant` (bool, int, double, complex, string,
               ///< device, lists of these; dtypes, layouts, formats as int).
    kSlot, ///< A run-time scalar: `slots[0]` indexes the slot table.
    kSlotList, ///< A run-time list of scalars: `slots`.
    kObject, ///< A captured object: `slots[0]` indexes `Graph::objects`.
  };
  Kind kind = Kind::kNone;
  ValueId value = kNoValue;
  std::vector<ValueId> values;
  std::vector<int32_t> slots;
  c10::IValue constant;
};

/// An operand that an op writes to.
struct Write {
  int32_t operand = 0; ///< Index into `Op::operands`.
  int32_t element = -1; ///< Index into a value list, else -1.
  /// Functional form: the new content of that operand. Raw form: kNoValue.
  ValueId result = kNoValue;
};

/// One call of a dispatcher operator.
struct Op {
  c10::OperatorHandle op;
  std::vector<Operand> operands;
  /// The tensors returned, flattened (a returned list gives one entry an
  /// element); kNoValue where undefined.
  ///  raw: a result that is an operand itself (in-place, out=) has its id.
  ///  functional: an in-place op's returned self has the id of that operand's
  ///  `Write::result`.
  std::vector<ValueId> results;
  std::vector<Write> writes; ///< Empty iff the op only reads.
};

/// A graph input that the graph changes.
struct Mutation {
  int32_t input = 0; ///< Index into `Graph::inputs`.
  /// Functional form: the final content. Raw form: kNoValue.
  ValueId value = kNoValue;
  /// False: the program writes the input itself. True (capture never asks for
  /// it, tests do): the final content is appended to the program's outputs, in
  /// the order of `mutations`, and the caller writes it (with autograd).
  bool as_output = false;
};

/// Where a gradient goes.
struct Delivery {
  enum class Target : uint8_t { kInput, kOutput };
  /// A contribution to the gradient of `inputs[index]`, or to the tangent of
  /// `outputs[index]`, which a later segment takes in (unless the backward ends
  /// there). Several are summed by the engine, with what comes from outside, in
  /// their order.
  Target target = Target::kInput;
  int32_t index = 0;
  ValueId value = kNoValue;
};

/// A run of backward ops whose gradients are delivered together.
struct Segment {
  /// The backward that it belongs to. A joint graph may have several, one for
  /// each set of gradients that was seen; at a time one of them runs. Their
  /// segments follow each other; none reads a value of another.
  int32_t backward = 0;
  int32_t first_op = 0; ///< Index into `Graph::ops`.
  int32_t end_op = 0; ///< One past the last op.
  /// The tangents that enter here, as indices into `Graph::inputs` (role
  /// kTangent).
  std::vector<int32_t> tangents;
  std::vector<Delivery> deliveries; ///< At the end of the segment.
};

/// A captured object that is no tensor (a generator, a script object).
struct Object {
  std::string kind; ///< "generator", …: part of the skeleton.
  std::string name; ///< For people.
};

enum class Form : uint8_t { kRaw, kFunctional };

/// See the head of this file.
struct Graph {
  Form form = Form::kRaw;
  std::vector<Value> values;
  std::vector<Input> inputs;
  std::vector<Object> objects;
  std::vector<Op> ops;
  std::vector<ValueId> outputs; ///< Of the forward part.
  std::vector<Mutation> mutations; ///< Of the forward part.
  /// Ops [0, num_forward_ops) are the forward part.
  int32_t num_forward_ops = 0;
  /// The backwards, each in order of execution; empty without one.
  std::vector<Segment> segments;
  /// For each tangent input, in the order of `inputs`: its output.
  std::vector<int32_t> tangent_outputs;
  /// Values of the slots in the trace that gave this graph: int, double, bool
  /// or complex. Their number and kinds belong to the skeleton, values don't.
  std::vector<c10::IValue> slots;
};

} // namespace temper::graph
