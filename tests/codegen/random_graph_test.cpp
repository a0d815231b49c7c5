// Random raw graphs: the compiled program against the reference run, bit for
// bit: views, writes through views, writes to inputs, out=, batch norm, random
// numbers, several outputs, backward segments.
//
// TEMPER_FUZZ_SEED=n runs graph n only; TEMPER_FUZZ_GRAPHS=n runs n graphs.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <string>

#include "base/env.h"
#include "codegen/compile_aten.h"
#include "graph/printer.h"
#include "passes/unsupported.h"
#include "support/random_raw_graph.h"
#include "support/run_artifact.h"

namespace temper::codegen {
namespace {

void expect_equal_graphs(const BackendOptions& options) {
  const int64_t only = base::env_int("TEMPER_FUZZ_SEED", -1);
  const int64_t count = base::env_int("TEMPER_FUZZ_GRAPHS", 400);
  int unsupported = 0;
  std::map<std::string, int> reasons;
  for (int64_t i = 0; i < (only >= 0 ? 1 : count); ++i) {
    const auto seed = static_cast<uint32_t>(only >= 0 ? only : i);
    torch::manual_seed(seed);
    support::RandomRawGraph random(seed);
    random.make();
    const graph::Graph raw = random.raw();
    try {
      ASSERT_TRUE(support::compiled_equals_raw(raw, random.inputs, options))
          << "TEMPER_FUZZ_SEED=" << seed;
    } catch (const passes::Unsupported& e) {
      ++unsupported;
      ++reasons[e.what()];
    } catch (const std::exception& e) {
      FAIL() << "TEMPER_FUZZ_SEED=" << seed << ": " << e.what() << '\n'
             << graph::print(raw);
    }
  }
  for (const auto& [reason, n] : reasons) {
    std::cout << n << " unsupported: " << reason << '\n';
  }
  EXPECT_LT(unsupported, count / 5);
}

TEST(RandomGraphs, CompiledEqualsRaw) {
  expect_equal_graphs({});
}

// What the backward computes again has the same bits: masks of equality hold.
TEST(RandomGraphs, RecomputedEqualsRaw) {
  BackendOptions options;
  options.partition.recompute_cheap = true;
  expect_equal_graphs(options);
}

} // namespace
} // namespace temper::codegen
