// Re-inplacing against the meaning of the functional form: each write on a
// copy of its operand. Random graphs, also with reads of older contents that
// no recording has.
#include "passes/reinplace.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "base/env.h"
#include "graph/build.h"
#include "graph/parser.h"
#include "graph/printer.h"
#include "graph/verifier.h"
#include "ops/op_info.h"
#include "ops/synthetic.h"
#include "passes/functionalise.h"
#include "passes/simplify.h"
#include "passes/unsupported.h"
#include "passes/util.h"
#include "support/random_raw_graph.h"
#include "support/raw_builder.h"

namespace temper::passes {
namespace {

using graph::Graph;
using graph::kNoValue;
using graph::Op;
using graph::Operand;
using graph::ValueId;

// The functional graph with each written operand copied first, as a graph whose
// ops can be run one after the other.
Graph with_copies(const Graph& functional) {
  Graph out = functional;
  out.form = graph::Form::kRaw;
  out.ops.clear();
  for (graph::Value& value : out.values) {
    value.storage = 0; // not used
  }
  std::vector<ValueId> object(functional.values.size());
  for (size_t i = 0; i < object.size(); ++i) {
    object[i] = static_cast<ValueId>(i);
  }
  for (const Op& op : functional.ops) {
    Op mapped = op;
    for (Operand& operand : mapped.operands) {
      for_each_value(operand, [&](ValueId& id) { id = object[index(id)]; });
    }
    for (const graph::Write& write : op.writes) {
      const ValueId copy =
          new_value(out, functional.values[index(write.result)].type);
      out.ops.push_back(
          {ops::copy_memory(),
           {graph::value_operand(object[index(written_value(op, write))]),
            graph::constant_operand(true)},
           {copy},
           {}});
      Operand& operand = mapped.operands[index(write.operand)];
      (write.element < 0 ? operand.value
                         : operand.values[index(write.element)]) = copy;
      object[index(write.result)] = copy;
    }
    for (ValueId& id : mapped.results) {
      id = id == kNoValue ? id : object[index(id)];
    }
    out.ops.push_back(std::move(mapped));
  }
  for (ValueId& id : out.outputs) {
    id = id == kNoValue ? id : object[index(id)];
  }
  // Old contents among the outputs must not be overwritten by the mutations.
  for (ValueId& id : out.outputs) {
    const ValueId copy = new_value(out, out.values[index(id)].type);
    out.ops.push_back(
        {ops::copy_memory(),
         {graph::value_operand(id), graph::constant_operand(false)},
         {copy},
         {}});
    id = copy;
  }
  std::vector<std::pair<ValueId, ValueId>> finals;
  for (graph::Mutation& mutation : out.mutations) {
    const ValueId copy =
        new_value(out, functional.values[index(mutation.value)].type);
    out.ops.push_back(
        {ops::copy_memory(),
         {graph::value_operand(object[index(mutation.value)]),
          graph::constant_operand(false)},
         {copy},
         {}});
    finals.emplace_back(functional.inputs[index(mutation.input)].value, copy);
    mutation.value = kNoValue;
  }
  for (const auto& [input, content] : finals) {
    out.ops.push_back(
        {graph::find_op("aten::copy_"),
         {graph::value_operand(input),
          graph::value_operand(content),
          graph::constant_operand(false)},
         {input},
         {}});
  }
  out.num_forward_ops = static_cast<int32_t>(out.ops.size());
  return out;
}

// Makes some operands read an older content of the same sizes.
void read_older(Graph& graph, std::mt19937& random) {
  std::vector<int32_t> defined = definitions(graph);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    Op& op = graph.ops[i];
    const ops::OpInfo& info = ops::info(op.op);
    if (ops::is_write_through(op.op) || info.alias != ops::Alias::kFresh ||
        random() % 3 != 0) {
      continue;
    }
    for (size_t k = 0; k < op.operands.size(); ++k) {
      Operand& operand = op.operands[k];
      const bool written = std::any_of(
          op.writes.begin(), op.writes.end(), [&](const graph::Write& write) {
            return static_cast<size_t>(write.operand) == k;
          });
      if (operand.kind != Operand::Kind::kValue || written) {
        continue;
      }
      std::vector<ValueId> fitting;
      for (size_t v = 0; v < graph.values.size(); ++v) {
        const bool is_input = std::any_of(
            graph.inputs.begin(),
            graph.inputs.end(),
            [&](const graph::Input& input) { return index(input.value) == v; });
        const bool before = is_input ||
            (defined[v] >= 0 && defined[v] < static_cast<int32_t>(i));
        if (before &&
            graph.values[v].type.sizes ==
                graph.values[index(operand.value)].type.sizes) {
          fitting.push_back(static_cast<ValueId>(v));
        }
      }
      operand.value = fitting[random() % fitting.size()];
    }
  }
  for (ValueId& id : graph.outputs) {
    if (random() % 3 == 0) {
      const size_t i = random() % graph.inputs.size();
      id = graph.inputs[i].value;
    }
  }
}

// Whether an op reads memory that it writes through another object: what it
// gives then depends on the order of its elements.
bool reads_what_it_writes(const Graph& raw) {
  for (const Op& op : raw.ops) {
    for (const graph::Write& write : op.writes) {
      const ValueId target = written_value(op, write);
      for (const Operand& operand : op.operands) {
        bool found = false;
        for_each_value(operand, [&](ValueId id) {
          found = found ||
              (id != target &&
               raw.values[index(id)].storage ==
                   raw.values[index(target)].storage);
        });
        if (found) {
          return true;
        }
      }
    }
  }
  return false;
}

TEST(Reinplace, RandomGraphsMeanTheSame) {
  const int64_t only = base::env_int("TEMPER_FUZZ_SEED", -1);
  const int64_t count = base::env_int("TEMPER_FUZZ_GRAPHS", 600);
  int compared = 0;
  for (int64_t i = 0; i < (only >= 0 ? 1 : count); ++i) {
    const auto seed = static_cast<uint32_t>(only >= 0 ? only : i);
    const std::string rerun = "TEMPER_FUZZ_SEED=" + std::to_string(seed);
    torch::manual_seed(seed);
    support::RandomRawGraph random(seed, /*backward=*/false);
    random.make();
    if (reads_what_it_writes(random.raw())) {
      continue;
    }
    Graph functional;
    try {
      functional = functionalise(random.raw());
    } catch (const Unsupported&) {
      continue;
    }
    std::mt19937 choices(seed);
    if (seed % 2 == 0) {
      read_older(functional, choices);
    }
    functional = simplify(functional);
    for (graph::Mutation& mutation : functional.mutations) {
      mutation.as_output = false;
    }
    graph::verify(functional);
    Graph placed;
    try {
      placed = reinplace(functional);
    } catch (const Unsupported&) {
      continue;
    }
    graph::verify(placed);
    const Graph reference = with_copies(functional);
    const auto a_inputs = support::copy_inputs(random.inputs);
    const auto b_inputs = support::copy_inputs(random.inputs);
    support::RunResult a;
    support::RunResult b;
    torch::manual_seed(seed);
    try {
      a = support::run_raw(reference, a_inputs);
    } catch (const c10::Error&) {
      continue; // what was changed does not fit
    }
    torch::manual_seed(seed);
    ASSERT_NO_THROW(b = support::run_raw(placed, b_inputs))
        << rerun << graph::print(functional) << graph::print(placed);
    ++compared;
    for (size_t k = 0; k < a.outputs.size(); ++k) {
      ASSERT_TRUE(support::same_bits(
          a.output_contents[k].contiguous(), b.output_contents[k].contiguous()))
          << rerun << " output " << k << graph::print(functional)
          << graph::print(placed);
    }
    for (size_t k = 0; k < a.input_contents.size(); ++k) {
      ASSERT_TRUE(support::same_bits(a.input_contents[k], b.input_contents[k]))
          << rerun << " input " << k << graph::print(functional)
          << graph::print(placed);
    }
  }
  EXPECT_GT(compared, count / 2);
}

TEST(Reinplace, ARecordedGraphComesBackWithoutCopies) {
  int compared = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    torch::manual_seed(seed);
    support::RandomRawGraph random(seed, /*backward=*/false);
    random.make();
    const Graph raw = random.raw();
    const bool as_output = std::any_of(
        raw.mutations.begin(),
        raw.mutations.end(),
        [](const graph::Mutation& mutation) { return mutation.as_output; });
    Graph functional;
    try {
      functional = functionalise(raw);
    } catch (const Unsupported&) {
      continue;
    }
    if (as_output) {
      continue;
    }
    ++compared;
    const Graph placed = reinplace(functional);
    int copies = 0;
    for (const Op& op : placed.ops) {
      copies += op.op == ops::copy_memory() ? 1 : 0;
    }
    EXPECT_EQ(copies, 0) << seed << graph::print(raw) << graph::print(placed);
    EXPECT_LE(placed.ops.size(), raw.ops.size())
        << seed << graph::print(raw) << graph::print(placed);
  }
  EXPECT_GT(compared, 150);
}

TEST(Reinplace, AnOldContentThatIsReadLaterIsKept) {
  const Graph functional = graph::parse(R"(graph functional {
  slot $0 = 2.0
  input %0 : f32[?4](1) buffer "b"
  %1 : f32[?4](1) = aten::mul_.Scalar(%0, $0) writes(0 -> %1)
  %2 : f32[?4](1) = aten::add.Tensor(%0, %1, $0)
  return %2
  mutate input 0 = %1
}
)");
  const Graph placed = reinplace(functional);
  ASSERT_EQ(placed.ops.size(), 4) << graph::print(placed);
  EXPECT_EQ(graph::op_name(placed.ops[0].op), "temper::copy_memory");
  EXPECT_EQ(graph::op_name(placed.ops[3].op), "aten::copy_");
  const at::Tensor x = torch::ones({4});
  const auto result = support::run_raw(placed, {x});
  EXPECT_EQ(result.outputs[0][0].item<float>(), 5.0F);
  EXPECT_EQ(x[0].item<float>(), 2.0F);
}

} // namespace
} // namespace temper::passes
