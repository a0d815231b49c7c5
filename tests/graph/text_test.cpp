// The text of a graph: printed, parsed, refused.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "graph/build.h"
#include "graph/equal.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "random_graph.h"
#include "texts.h"

namespace temper::graph {
namespace {

using testing::HasSubstr;

TEST(Text, GraphsOfEveryFormPrintAsTheyWereWritten) {
  for (const auto text : {kJointText, kBackwardsText, kRawText, kOddText}) {
    EXPECT_EQ(print(parse(text)), text);
  }
}

TEST(Text, ParsedGraphsHaveTheFieldsThatTheTextSays) {
  const Graph graph = parse(kJointText);
  EXPECT_EQ(graph.form, Form::kFunctional);
  EXPECT_EQ(graph.num_forward_ops, 4);
  EXPECT_EQ(graph.ops.size(), 8U);
  EXPECT_EQ(graph.tangent_outputs, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(graph.outputs, (std::vector<ValueId>{7, 5, kNoValue}));
  EXPECT_EQ(graph.inputs[1].name, "fc.weight");
  EXPECT_EQ(graph.inputs[1].role, Role::kParameter);
  EXPECT_EQ(graph.values[0].type.sizes[0], slot_dim(0, 8));
  EXPECT_EQ(graph.values[2].type.sizes[0], any_dim(8));
  EXPECT_EQ(graph.values[4].type.strides, (std::vector<int64_t>{1, 64}));
  EXPECT_EQ(graph.ops[3].writes[0].result, 7);
  EXPECT_EQ(graph.segments[1].first_op, 5);
  EXPECT_EQ(graph.segments[1].end_op, 8);
  EXPECT_EQ(graph.segments[0].deliveries[0].target, Delivery::Target::kOutput);
  EXPECT_DOUBLE_EQ(graph.slots[1].toDouble(), 0.5);

  const Graph backwards = parse(kBackwardsText);
  EXPECT_EQ(backwards.segments[2].deliveries[0].value, 9);
  EXPECT_EQ(backwards.segments[2].deliveries[1].value, kNoValue);

  const Graph raw = parse(kRawText);
  EXPECT_EQ(raw.values[2].storage, 7);
  EXPECT_EQ(raw.ops[3].results, (std::vector<ValueId>{3}));
  EXPECT_EQ(raw.ops[4].writes[1].element, 1);
  EXPECT_TRUE(raw.mutations[1].as_output);
}

TEST(Text, RandomGraphsReadBackEqualInEveryField) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "RandomGraph(" << seed << ")");
    const Graph graph = RandomGraph(seed).make();
    const std::string text = print(graph);
    Graph again;
    ASSERT_NO_THROW(again = parse(text)) << text;
    ASSERT_TRUE(equal(graph, again)) << text << print(again);
    ASSERT_EQ(print(again), text);
  }
}

TEST(Text, SpaceAndCommentsOnlySeparate) {
  const Graph graph = parse(
      "// a comment\ngraph functional{slot$0=8 input%0:f32[$0=8](1)argument"
      "\"x\"\t%1:f32[?8](1)=aten::relu(%0)// more\nreturn%1}");
  EXPECT_EQ(graph.ops.size(), 1U);
  EXPECT_EQ(graph.outputs.size(), 1U);
}

TEST(Text, OneOpIsTheLineOfTheGraph) {
  const Graph graph = parse(kJointText);
  EXPECT_THAT(
      std::string(kJointText), HasSubstr("\n  " + print_op(graph, 3) + "\n"));
  EXPECT_EQ(print_type(graph.values[0].type), "f32[$0=8, 64](64, 1)");
}

TEST(Text, AnUnsoundGraphIsPrintedAsFarAsItGoes) {
  Graph graph = parse(kJointText);
  graph.segments[1].first_op = 7;
  graph.ops[0].operands[0].value = 99;
  graph.ops[1].operands[0] = constant_operand(c10::IValue());
  graph.ops[2].operands[1].slots.clear();
  const std::string text = print(graph);
  EXPECT_THAT(text, HasSubstr("// segment of ops 7 to 8"));
  EXPECT_THAT(text, HasSubstr("aten::t(%99)"));
  EXPECT_THAT(text, HasSubstr("/* no constant: None */"));
  EXPECT_THAT(text, HasSubstr("%10 : f32[32, 8](1, 32) = aten::t(%3)"));
}

TEST(Text, NamesOfOperatorsAreFoundAndGivenBack) {
  for (const char* name : {"aten::mm", "aten::add.Tensor"}) {
    EXPECT_EQ(op_name(find_op(name)), name);
  }
  EXPECT_THROW(find_op("aten::no_such_op"), Error);
  EXPECT_THROW(find_op("aten::add.NoSuchOverload"), Error);
  EXPECT_THROW(find_op(""), Error);
}

TEST(Text, DenseTypesAreRowMajorAsInATen) {
  const auto strides = [](std::vector<Dim> sizes) {
    return dense_type(c10::kFloat, std::move(sizes)).strides;
  };
  EXPECT_EQ(
      strides({const_dim(2), any_dim(3), const_dim(4)}),
      (std::vector<int64_t>{12, 4, 1}));
  EXPECT_EQ(
      strides({const_dim(2), const_dim(0), const_dim(4)}),
      (std::vector<int64_t>{4, 4, 1}));
  EXPECT_TRUE(strides({}).empty());
}

struct BadText {
  const char* text;
  const char* message; ///< After "temper: graph text, ".
};

TEST(Text, ErrorsNameThePlaceWhatWasFoundAndWhatWasExpected) {
  const std::vector<BadText> cases = {
      {"", "line 1, column 1: found the end of the text, expected 'graph'"},
      {"graph cooked {", "column 7: found 'cooked', expected 'raw' or "},
      {"graph raw {\n  slot $1 = 3", "line 2, column 9: found '1', expected 0"},
      {"graph raw { slot $0 = x", "found 'x', expected a constant"},
      {"graph raw { slot $0 = 99999999999999999999",
       "found '99999999999999999999', expected an integer of 64 bits"},
      {"graph raw { slot $0 = 1.5.5", "found '1.5.5', expected a number"},
      {"graph raw { slot $0 = -nan", "found 'nan', expected a number"},
      {"graph raw { slot $0 = complex(1, 2.0)",
       "column 31: found an integer, expected a floating-point number"},
      {"graph raw { slot $0 = nan(5)", "expected the bits of a NaN in hex"},
      {"graph raw { slot $0 = int[1, 2.0]",
       "column 30: found '2.0', expected an element of kind int"},
      {"graph raw { slot $0 = device(\"tpu!\")",
       "found \"tpu!\", expected a device"},
      {"graph raw { slot $0 = float 3", "found '3', expected '[', for a list"},
      {"graph raw { object #0 = generator",
       "found 'generator', expected a quoted string"},
      {"graph raw { input %0 : f31[](", "found 'f31', expected a dtype"},
      {"graph raw { input %0 : f32[3](1) on \"x\"", "expected a device"},
      {"graph raw { input %0 : f32[3](1) \"x\"", "expected a role, as in "},
      {"graph raw { input %0 : f32[](1) argument \"x\" of output 0",
       "found 'argument', expected 'tangent', as an output is named"},
      {"graph raw { input %0 : f32[]() argument \"x\n\"",
       "found a string without end, expected a closing quote"},
      {"graph raw { input %0 : f32[]() argument \"\\q\"",
       "column 42: found an unknown escape"},
      {"graph raw { input %99999 : f32[]() argument \"x\"",
       "found '99999', expected values numbered from 0 on"},
      {"graph raw { input %9999999999 : f32[]() argument \"x\"",
       "expected a number of at most 31 bits"},
      {"graph raw { input %0 : f32[]() argument \"x\" value %0 : f32[]()",
       "found another type of this value, expected one"},
      {"graph raw { mm(%0)", "found 'mm', expected an operator, as in"},
      {"graph raw { aten::mmm(%0)",
       "found 'aten::mmm', expected an operator that is registered"},
      {"graph raw { aten::mm(%0", "found the end of the text, expected ')'"},
      {"graph raw { aten::mm(@)", "found '@', expected a constant"},
      {"graph raw { aten::mm(;)",
       "found the character \";\", expected a token"},
      {"graph raw { %0 aten::mm()", "found 'aten::mm', expected '='"},
      {"graph raw { }", "found '}', expected an op or 'return'"},
      {"graph raw { return %0 }",
       "column 20: found %0 without a type, expected one"},
      {"graph raw { input %1 : f32[]() argument \"x\" return }",
       "found no %0 though a higher number is used"},
      {"graph raw { return aten::mm() }",
       "found 'aten::mm', expected 'mutate', 'segment' or '}'"},
      {"graph raw { return mutate %0", "found '%', expected 'input'"},
      {"graph raw { return segment tangents() { deliver 3",
       "found '3', expected 'input'"},
      {"graph raw { return segment tangents() { deliver input 0 = 3",
       "found '3', expected a value, as in %0, or 'none'"},
      {"graph raw { return } x", "found 'x', expected the end of the text"},
  };
  for (const BadText& bad : cases) {
    SCOPED_TRACE(bad.text);
    try {
      parse(bad.text);
      ADD_FAILURE() << "was parsed";
    } catch (const Error& error) {
      EXPECT_THAT(
          error.what(), testing::StartsWith("temper: graph text, line"));
      EXPECT_THAT(error.what(), HasSubstr(bad.message));
    }
  }
}

TEST(Text, NoCutOrChangedTextDoesWorseThanAnError) {
  std::mt19937 random(1);
  for (const auto text : {kJointText, kBackwardsText, kRawText, kOddText}) {
    for (int i = 0; i < 400; ++i) {
      std::string changed(text.substr(0, random() % (text.size() + 1)));
      if (!changed.empty() && i % 2 == 0) {
        changed = text;
        changed[random() % changed.size()] = static_cast<char>(random());
      }
      try {
        const auto text_again = print(parse(changed));
        EXPECT_EQ(print(parse(text_again)), text_again);
      } catch (const Error&) {
        continue;
      }
    }
  }
}

} // namespace
} // namespace temper::graph
