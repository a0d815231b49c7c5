// Runs the passes.
#include "passes/pipeline.h"

#include <chrono>

#include "base/log.h"
#include "graph/printer.h"
#include "graph/verifier.h"
#include "passes/functionalise.h"
#include "passes/reinplace.h"
#include "passes/simplify.h"
#include "passes/test_hooks.h"

namespace temper::passes {

namespace {

using graph::Graph;
using Pass = Graph (*)(const Graph&);

struct NamedPass {
  const char* name;
  Pass run;
};

constexpr NamedPass kCanonicalise[] = {
    {"functionalise", functionalise},
    {"simplify", simplify},
};

constexpr NamedPass kPlace[] = {
    {"simplify", simplify},
    {"reinplace", reinplace},
};

void check(const Graph& graph) {
#ifdef TEMPER_VERIFY
  graph::verify(graph);
#else
  static_cast<void>(graph);
#endif
}

Graph run_pass(const NamedPass& pass, const char* part, const Graph& graph) {
  const auto start = std::chrono::steady_clock::now();
  Graph result = pass.run(graph);
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  check(result);
  TEMPER_LOG(
      kGraph,
      part,
      " after ",
      pass.name,
      " (",
      took.count(),
      " ms):\n",
      graph::print(result));
  return result;
}

void place(Graph& graph, const char* part) {
  check(graph);
  for (const NamedPass& pass : kPlace) {
    graph = run_pass(pass, part, graph);
  }
  if (const TestHooks::Hook hook = test_hooks().placed.load()) {
    hook(graph);
  }
}

} // namespace

TestHooks& test_hooks() {
  static TestHooks hooks;
  return hooks;
}

Graph canonicalise(const Graph& raw) {
  check(raw);
  Graph graph = raw;
  for (const NamedPass& pass : kCanonicalise) {
    graph = run_pass(pass, "graph", graph);
  }
  return graph;
}

Partition run_pipeline(const Graph& raw, const PipelineOptions& options) {
  Graph graph = canonicalise(raw);
  if (const TestHooks::Hook hook = test_hooks().functional.load()) {
    hook(graph);
  }
  Partition result = partition(graph, options.partition);
  place(result.forward, "forward");
  for (SegmentGraph& segment : result.segments) {
    place(segment.graph, "backward segment");
  }
  return result;
}

} // namespace temper::passes
