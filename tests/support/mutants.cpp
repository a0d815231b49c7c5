// The mutants by name.
#include "support/mutants.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "graph/build.h"
#include "graph/graph.h"
#include "graph/slots.h"
#include "passes/mutants.h"

namespace temper::testing {
namespace {

using graph::Graph;

// The first product becomes a maximum.
bool change_product(Graph& graph) {
  for (graph::Op& op : graph.ops) {
    if (graph::op_name(op.op) == "aten::mul.Tensor") {
      op.op = graph::find_op("aten::maximum");
      return true;
    }
  }
  return false;
}

// Two outputs of one type go to each other's place.
bool swap_outputs(Graph& graph) {
  const auto type = [&](size_t i) {
    return graph.outputs[i] == graph::kNoValue
        ? nullptr
        : &graph.values[static_cast<size_t>(graph.outputs[i])].type;
  };
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (type(i) != nullptr && type(j) != nullptr &&
          graph.outputs[i] != graph.outputs[j] &&
          type(i)->dtype == type(j)->dtype &&
          type(i)->sizes == type(j)->sizes &&
          type(i)->strides == type(j)->strides) {
        std::swap(graph.outputs[i], graph.outputs[j]);
        return true;
      }
    }
  }
  return false;
}

// A gradient is delivered undefined.
bool lose_gradient(Graph& graph) {
  for (graph::Segment& segment : graph.segments) {
    for (graph::Delivery& delivery : segment.deliveries) {
      if (delivery.value != graph::kNoValue) {
        delivery.value = graph::kNoValue;
        return true;
      }
    }
  }
  return false;
}

// Every run-time scalar is frozen to the value of the trace. A list of scalars
// of any kind can't be a constant: there the first stands for all.
bool freeze_slots(Graph& graph) {
  bool changed = false;
  for (graph::Op& op : graph.ops) {
    const auto& arguments = op.op.schema().arguments();
    for (size_t i = 0; i < op.operands.size(); ++i) {
      graph::Operand& operand = op.operands[i];
      if (operand.kind == graph::Operand::Kind::kSlot) {
        operand = graph::constant_operand(
            graph.slots[static_cast<size_t>(operand.slots[0])]);
        changed = true;
      } else if (
          operand.kind == graph::Operand::Kind::kSlotList &&
          !operand.slots.empty()) {
        if (graph::is_scalar_list(arguments[i])) {
          const auto first = operand.slots[0];
          for (int32_t& slot : operand.slots) {
            changed = changed || slot != first;
            slot = first;
          }
        } else {
          operand = graph::constant_operand(graph::list_of_slots(
              operand.slots, graph.slots.data(), /*scalars=*/false));
          changed = true;
        }
      }
    }
  }
  return changed;
}

struct Mutant {
  const char* name;
  bool (*change)(Graph&);
};

constexpr Mutant kMutants[] = {
    {"change_activation", &passes::mutants::change_activation},
    {"change_product", &change_product},
    {"drop_mutation", &passes::mutants::drop_mutation},
    {"swap_deliveries", &passes::mutants::swap_deliveries},
    {"lose_gradient", &lose_gradient},
    {"swap_outputs", &swap_outputs},
    {"freeze_slots", &freeze_slots},
    {"skip_epilogue_copy", &passes::mutants::skip_epilogue_copy},
};

void report(const char* mutant, const char* suite, int changed, int failed) {
  std::cout << "mutant " << mutant << " in " << suite << ": changed " << changed
            << " graphs, " << failed << " tests failed" << std::endl;
}

// Says of each test suite what became of it.
class MutantReporter : public ::testing::EmptyTestEventListener {
 public:
  explicit MutantReporter(const Mutant& mutant) : mutant_(mutant) {}

  void OnTestSuiteEnd(const ::testing::TestSuite& suite) override {
    const int changed = passes::mutants::Scope::changed();
    report(
        mutant_.name,
        suite.name(),
        changed - changed_before_,
        suite.failed_test_count());
    changed_before_ = changed;
  }

 private:
  const Mutant& mutant_;
  int changed_before_ = 0;
};

class MutantEnvironment : public ::testing::Environment {
 public:
  explicit MutantEnvironment(const Mutant& mutant) : mutant_(mutant) {}

  void SetUp() override {
    scope_ = std::make_unique<passes::mutants::Scope>(mutant_.change);
  }
  void TearDown() override {
    std::cout << "mutant " << mutant_.name << " changed "
              << passes::mutants::Scope::changed() << " graphs" << std::endl;
    scope_.reset();
  }

 private:
  const Mutant& mutant_;
  std::unique_ptr<passes::mutants::Scope> scope_;
};

} // namespace

bool install_mutant() {
  const char* const name = std::getenv("TEMPER_TEST_MUTANT");
  if (name == nullptr || *name == '\0') {
    return false;
  }
  const bool list = std::string_view(name) == "list";
  for (const Mutant& mutant : kMutants) {
    if (list) {
      std::cout << mutant.name << '\n';
    } else if (std::string_view(name) == mutant.name) {
      // Googletest owns them.
      ::testing::AddGlobalTestEnvironment(new MutantEnvironment(mutant));
      ::testing::UnitTest::GetInstance()->listeners().Append(
          new MutantReporter(mutant));
      return true;
    }
  }
  if (!list) {
    std::cerr << "TEMPER_TEST_MUTANT is '" << name
              << "', expected one of those that 'list' prints\n";
  }
  std::exit(list ? 0 : 2);
}

void report_mutant_of_a_child(bool failed) {
  const char* const name = std::getenv("TEMPER_TEST_MUTANT");
  const auto* const test = ::testing::UnitTest::GetInstance();
  if (name != nullptr && *name != '\0') {
    report(
        name,
        test->current_test_suite()->name(),
        passes::mutants::Scope::changed(),
        failed ? 1 : 0);
  }
}

} // namespace temper::testing
