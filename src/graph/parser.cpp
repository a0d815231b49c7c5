// Reads a graph from its text (see printer.h).
#include "graph/parser.h"

#include <string>
#include <utility>

#include "base/error.h"
#include "graph/build.h"
#include "graph/names.h"
#include "graph/token_reader.h"

namespace temper::graph {

namespace {

class Parser {
 public:
  explicit Parser(std::string_view text)
      : tokens_(text), max_values_(text.size()) {}

  Graph run() {
    tokens_.word("graph");
    if (tokens_.accept_word("raw")) {
      graph_.form = Form::kRaw;
    } else if (tokens_.accept_word("functional")) {
      graph_.form = Form::kFunctional;
    } else {
      tokens_.fail("'raw' or 'functional'");
    }
    tokens_.sign("{");
    while (header()) {
    }
    while (!tokens_.accept_word("return")) {
      if (tokens_.at_sign("}")) {
        tokens_.fail("an op or 'return'");
      }
      op();
    }
    graph_.num_forward_ops = num_ops();
    if (at_value()) {
      do {
        graph_.outputs.push_back(value());
      } while (tokens_.accept_sign(","));
    }
    while (tokens_.accept_word("mutate")) {
      mutation();
    }
    while (tokens_.accept_word("segment")) {
      segment();
    }
    if (!tokens_.at_sign("}")) {
      tokens_.fail("'mutate', 'segment' or '}'");
    }
    tokens_.take();
    if (tokens_.current().kind != Token::Kind::kEnd) {
      tokens_.fail("the end of the text");
    }
    check_values();
    return std::move(graph_);
  }

 private:
  /// What the text says of one value.
  struct Mention {
    bool mentioned = false;
    bool typed = false;
    Token first; ///< Where it was mentioned first.
  };

  int32_t num_ops() const {
    return static_cast<int32_t>(graph_.ops.size());
  }

  // One slot, object, input or undefined value; false if there is none.
  bool header() {
    if (tokens_.accept_word("slot")) {
      numbered("$", graph_.slots.size());
      graph_.slots.push_back(tokens_.constant());
    } else if (tokens_.accept_word("object")) {
      numbered("#", graph_.objects.size());
      std::string kind = tokens_.string();
      graph_.objects.push_back({std::move(kind), tokens_.string()});
    } else if (tokens_.accept_word("input")) {
      input();
    } else if (tokens_.accept_word("value")) {
      definition();
    } else {
      return false;
    }
    return true;
  }

  void numbered(std::string_view sign, size_t expected) {
    tokens_.sign(sign);
    const Token number = tokens_.current();
    if (static_cast<size_t>(tokens_.index()) != expected) {
      fail_at(number, number.described(), std::to_string(expected));
    }
    tokens_.sign("=");
  }

  void input() {
    Input input;
    input.value = definition();
    const Token role = tokens_.take();
    const auto known = role_from_name(role.text);
    if (role.kind != Token::Kind::kWord || !known) {
      fail_at(role, role.described(), "a role, as in 'argument'");
    }
    input.role = *known;
    input.name = tokens_.string();
    if (tokens_.accept_word("of")) {
      if (input.role != Role::kTangent) {
        fail_at(role, role.described(), "'tangent', as an output is named");
      }
      tokens_.word("output");
      graph_.tangent_outputs.push_back(tokens_.index());
    }
    graph_.inputs.push_back(std::move(input));
  }

  bool at_value() const {
    return tokens_.at_sign("%") || tokens_.at_word("none");
  }

  // %id or none.
  ValueId value() {
    if (tokens_.accept_word("none")) {
      return kNoValue;
    }
    if (!tokens_.at_sign("%")) {
      tokens_.fail("a value, as in %0, or 'none'");
    }
    const Token first = tokens_.take();
    const Token number = tokens_.current();
    const ValueId id = tokens_.index();
    const auto at = static_cast<size_t>(id);
    // Every value is defined somewhere: a text has room for so many only.
    if (at >= max_values_) {
      fail_at(number, number.described(), "values numbered from 0 on");
    }
    if (at >= mentions_.size()) {
      mentions_.resize(at + 1);
      graph_.values.resize(at + 1);
    }
    if (!mentions_[at].mentioned) {
      mentions_[at].mentioned = true;
      mentions_[at].first = first;
    }
    return id;
  }

  // A value, with its type where it has not been told.
  ValueId definition() {
    const ValueId id = value();
    if (!tokens_.at_sign(":")) {
      return id;
    }
    const Token colon = tokens_.take();
    if (id == kNoValue || mentions_[static_cast<size_t>(id)].typed) {
      fail_at(colon, "another type of this value", "one");
    }
    mentions_[static_cast<size_t>(id)].typed = true;
    Value& value = graph_.values[static_cast<size_t>(id)];
    value.type = type();
    if (tokens_.accept_sign("@")) {
      value.storage = tokens_.index();
    }
    return id;
  }

  Type type() {
    Type type;
    const Token dtype = tokens_.take();
    const auto known = dtype_from_name(dtype.text);
    if (dtype.kind != Token::Kind::kWord || !known) {
      fail_at(dtype, dtype.described(), "a dtype, as in 'f32'");
    }
    type.dtype = *known;
    tokens_.sign("[");
    tokens_.list("]", [&] { type.sizes.push_back(dim()); });
    tokens_.sign("(");
    tokens_.list(")", [&] { type.strides.push_back(tokens_.integer()); });
    if (tokens_.accept_word("on")) {
      const Token device = tokens_.take();
      try {
        type.device = c10::Device(device.text);
      } catch (const c10::Error&) {
        fail_at(device, device.described(), "a device, as in cuda:0");
      }
    }
    type.conj = tokens_.accept_word("conj");
    type.neg = tokens_.accept_word("neg");
    return type;
  }

  Dim dim() {
    if (tokens_.accept_sign("?")) {
      return any_dim(tokens_.integer());
    }
    if (tokens_.accept_sign("$")) {
      const int32_t slot = tokens_.index();
      tokens_.sign("=");
      return slot_dim(slot, tokens_.integer());
    }
    return const_dim(tokens_.integer());
  }

  void op() {
    std::vector<ValueId> results;
    if (at_value()) {
      do {
        results.push_back(definition());
      } while (tokens_.accept_sign(","));
      tokens_.sign("=");
    }
    const Token name = tokens_.current();
    if (name.kind != Token::Kind::kWord ||
        name.text.find("::") == std::string::npos) {
      tokens_.fail("an operator, as in aten::add.Tensor");
    }
    tokens_.take();
    Op op{handle(name), {}, std::move(results), {}};
    tokens_.sign("(");
    tokens_.list(")", [&] { op.operands.push_back(operand()); });
    if (tokens_.accept_word("writes")) {
      tokens_.sign("(");
      tokens_.list(")", [&] { op.writes.push_back(write()); });
    }
    graph_.ops.push_back(std::move(op));
  }

  static c10::OperatorHandle handle(const Token& name) {
    try {
      return find_op(name.text);
    } catch (const Error&) {
      fail_at(name, name.described(), "an operator that is registered");
    }
  }

  Operand operand() {
    if (tokens_.accept_word("none")) {
      return none_operand();
    }
    if (tokens_.at_sign("%")) {
      return value_operand(value());
    }
    if (tokens_.accept_sign("[")) {
      std::vector<ValueId> values;
      tokens_.list("]", [&] { values.push_back(value()); });
      return value_list_operand(std::move(values));
    }
    if (tokens_.accept_sign("#")) {
      return object_operand(tokens_.index());
    }
    if (!tokens_.accept_sign("$")) {
      return constant_operand(tokens_.constant());
    }
    if (!tokens_.accept_sign("[")) {
      return slot_operand(tokens_.index());
    }
    std::vector<int32_t> slots;
    tokens_.list("]", [&] { slots.push_back(tokens_.index()); });
    return slot_list_operand(std::move(slots));
  }

  Write write() {
    Write write;
    write.operand = tokens_.index();
    if (tokens_.accept_sign("[")) {
      write.element = tokens_.index();
      tokens_.sign("]");
    }
    if (tokens_.accept_sign("->")) {
      write.result = definition();
    }
    return write;
  }

  void mutation() {
    Mutation mutation;
    tokens_.word("input");
    mutation.input = tokens_.index();
    if (tokens_.accept_sign("=")) {
      mutation.value = value();
    }
    if (tokens_.accept_word("as")) {
      tokens_.word("output");
      mutation.as_output = true;
    }
    graph_.mutations.push_back(mutation);
  }

  void segment() {
    Segment segment;
    if (tokens_.accept_word("of")) {
      segment.backward = tokens_.index();
    }
    tokens_.word("tangents");
    tokens_.sign("(");
    tokens_.list(")", [&] { segment.tangents.push_back(tokens_.index()); });
    tokens_.sign("{");
    segment.first_op = num_ops();
    while (!tokens_.at_word("deliver") && !tokens_.at_sign("}")) {
      op();
    }
    segment.end_op = num_ops();
    while (tokens_.accept_word("deliver")) {
      Delivery delivery;
      if (tokens_.accept_word("output")) {
        delivery.target = Delivery::Target::kOutput;
      } else {
        tokens_.word("input");
      }
      delivery.index = tokens_.index();
      tokens_.sign("=");
      delivery.value = value();
      segment.deliveries.push_back(delivery);
    }
    tokens_.sign("}");
    graph_.segments.push_back(std::move(segment));
  }

  void check_values() const {
    for (size_t id = 0; id < mentions_.size(); ++id) {
      const std::string name = c10::str("%", id);
      if (!mentions_[id].mentioned) {
        fail_at(
            tokens_.current(),
            "no " + name + " though a higher number is used",
            "values numbered from 0 on");
      }
      if (!mentions_[id].typed) {
        fail_at(
            mentions_[id].first,
            name + " without a type",
            "one where it is defined");
      }
    }
  }

  TokenReader tokens_;
  size_t max_values_;
  Graph graph_;
  std::vector<Mention> mentions_; ///< As `Graph::values`.
};

} // namespace

Graph parse(std::string_view text) {
  return Parser(text).run();
}

} // namespace temper::graph
