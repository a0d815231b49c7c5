// Minimum vertex cut by maximum flow.
//
// 1. Each vertex is an edge from its entry to its exit with its cost as
//    capacity; computing is an edge without limit from exit to entry.
// 2. After the flow, the vertices from whose entry the sink can't be reached
//    in the residual graph, but from whose exit it can, are the cut. Searching
//    back from the sink gives the cut nearest to it.
#include "passes/min_cut.h"

// g++ 12 believes that Boost's edge iterators are read uninitialised, and says
// so at the end of the file.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>

namespace temper::passes {

namespace {

using Traits =
    boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;

struct Vertex {
  boost::default_color_type color{};
  Traits::edge_descriptor predecessor;
  long distance = 0;
};

struct Edge {
  int64_t capacity = 0;
  int64_t residual = 0;
  Traits::edge_descriptor reverse;
};

using Network = boost::
    adjacency_list<boost::vecS, boost::vecS, boost::directedS, Vertex, Edge>;

void connect(Network& network, size_t from, size_t to, int64_t capacity) {
  const auto there = boost::add_edge(from, to, network).first;
  const auto back = boost::add_edge(to, from, network).first;
  network[there].capacity = capacity;
  network[there].reverse = back;
  network[back].reverse = there;
}

} // namespace

std::vector<int32_t> min_cut(const CutProblem& problem) {
  const size_t n = problem.costs.size();
  const size_t source = 2 * n;
  const size_t sink = 2 * n + 1;
  const auto entry = [](int32_t v) { return 2 * static_cast<size_t>(v); };
  const auto exit = [](int32_t v) { return 2 * static_cast<size_t>(v) + 1; };

  Network network(2 * n + 2);
  for (size_t v = 0; v < n; ++v) {
    connect(network, 2 * v, 2 * v + 1, problem.costs[v]);
  }
  for (const auto& [from, to] : problem.edges) {
    connect(network, exit(from), entry(to), CutProblem::kNever);
  }
  for (const int32_t v : problem.given) {
    connect(network, source, entry(v), CutProblem::kNever);
  }
  for (const int32_t v : problem.needed) {
    connect(network, exit(v), sink, CutProblem::kNever);
  }
  boost::boykov_kolmogorov_max_flow(
      network,
      boost::get(&Edge::capacity, network),
      boost::get(&Edge::residual, network),
      boost::get(&Edge::reverse, network),
      boost::get(&Vertex::predecessor, network),
      boost::get(&Vertex::color, network),
      boost::get(&Vertex::distance, network),
      boost::get(boost::vertex_index, network),
      source,
      sink);

  // Each edge has its reverse, so that the edges into a vertex are found among
  // those out of it.
  std::vector<bool> reaches(2 * n + 2);
  std::vector<size_t> work = {sink};
  reaches[sink] = true;
  while (!work.empty()) {
    const size_t v = work.back();
    work.pop_back();
    for (auto [edge, end] = boost::out_edges(v, network); edge != end; ++edge) {
      const size_t u = boost::target(*edge, network);
      if (!reaches[u] && network[network[*edge].reverse].residual > 0) {
        reaches[u] = true;
        work.push_back(u);
      }
    }
  }
  std::vector<int32_t> cut;
  for (size_t v = 0; v < n; ++v) {
    if (!reaches[2 * v] && reaches[2 * v + 1]) {
      cut.push_back(static_cast<int32_t>(v));
    }
  }
  return cut;
}

} // namespace temper::passes
