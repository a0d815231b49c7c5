// What a shadowed call costs: the second of a signature, which proves the
// trace.
#include <algorithm>
#include <regex>
#include <vector>

#include "models.h"
#include "suites.h"

namespace bench {

namespace {

// What `explain` says by a pattern; empty if it doesn't say it.
std::vector<double> numbers(const CompiledNet& net, const char* pattern) {
  const std::string text = net.site.explain();
  std::smatch match;
  std::vector<double> result;
  if (std::regex_search(text, match, std::regex(pattern))) {
    for (size_t i = 1; i < match.size(); ++i) {
      result.push_back(std::stod(match[i]));
    }
  }
  return result;
}

double forward_ops(const CompiledNet& net) {
  return numbers(net, "([0-9]+) forward ops").at(0);
}

// What the sites' shadow runs have cost: what is between guards and program.
class ShadowCost {
 public:
  explicit ShadowCost(const std::vector<FreshSite>& sites) : sites_(sites) {}

  /// If every site has had one since the last time: a sample, in microseconds a
  /// run.
  void look() {
    double runs = 0;
    double ms = 0;
    for (const FreshSite& site : sites_) {
      const auto cost =
          numbers(site.net(), "([0-9]+) shadow runs? ([0-9.e+-]+) ms");
      if (!cost.empty()) { // None before the first.
        runs += cost[0];
        ms += cost[1];
      }
    }
    if (runs - runs_ == static_cast<double>(sites_.size())) {
      samples_.push_back((ms - ms_) * 1000 / (runs - runs_));
    }
    runs_ = runs;
    ms_ = ms;
  }
  const Samples& samples() const {
    return samples_;
  }

 private:
  const std::vector<FreshSite>& sites_;
  double runs_ = 0;
  double ms_ = 0;
  Samples samples_;
};

// Each turn has fresh call sites, traced beforehand: one call of each, in a
// row, and a single one right behind its trace, which finds the processor's
// caches cold.
constexpr int64_t kSites = 16;

void measure_shadow(const Context& context, const Subject& subject, Mode mode) {
  const ModeScope scope(subject, mode);
  std::vector<FreshSite> fresh;
  for (int64_t i = 0; i < kSites; ++i) {
    fresh.emplace_back(subject);
  }
  std::vector<torch::Tensor> outputs;
  outputs.reserve(kSites);
  const auto trace = [&](FreshSite& site) {
    site.forget();
    step(subject, mode, site.net().call);
  };
  const CompiledNet known = subject.compile();
  step(subject, mode, known.call);
  step(subject, mode, known.call);
  const auto each = [&](const auto& call_of) {
    return [&, call_of] {
      for (FreshSite& site : fresh) {
        outputs.push_back(call_of(site)(subject.input));
      }
    };
  };
  const auto one = [&](const auto& call) {
    return [&, call] { outputs.push_back(call(subject.input)); };
  };
  ShadowCost cost(fresh);
  // What the timed calls gave goes untimed.
  const auto finish = [&] {
    outputs.clear();
    cost.look();
  };
  temper::reset_counters();
  auto samples = interleave(
      context.timing,
      {{each([](FreshSite& site) { return site.net().call; }),
        [&] {
          finish();
          std::for_each(fresh.begin(), fresh.end(), trace);
        }},
       {each([&](FreshSite&) { return subject.eager; }), finish},
       {each([&](FreshSite&) { return known.call; }), finish},
       {one(fresh[0].net().call),
        [&] {
          finish();
          trace(fresh[0]);
        }},
       {one(known.call), finish}});
  finish();
  for (size_t side = 0; side < 3; ++side) {
    for (double& us : samples[side]) {
      us /= kSites;
    }
  }
  const double ops = forward_ops(known);
  const double us_op = median(cost.samples()) / ops;
  const double us_op_min = minimum(cost.samples()) / ops;
  const double us_op_call = median_difference(samples[0], samples[2]) / ops;
  const double us_op_cold = median_difference(samples[3], samples[4]) / ops;
  const double us_admitted = median(samples[2]);
  Row row = make_row("trace", "shadow", mode, samples);
  require(
      row,
      row.counters.eager_total() == 0 &&
          row.counters.traces == row.counters.shadow_runs &&
          row.counters.shadow_runs == row.counters.admissions,
      "each traced call followed by one that is shadowed and admitted");
  row.extra = {
      {"net", subject.name},
      {"ops", ops},
      {"us_admitted", us_admitted},
      {"us_per_op", us_op},
      {"us_per_op_min", us_op_min},
      {"us_per_op_call", us_op_call},
      {"us_per_op_call_cold", us_op_cold}};
  row.note = subject.name + ": the shadow run " + microseconds(us_op) +
      " an op, at best " + microseconds(us_op_min) + "; the call " +
      microseconds(us_op_call) + " more than admitted, cold " +
      microseconds(us_op_cold);
  context.emit(row);
}

void run(const Context& context) {
  if (!context.wanted("shadow")) {
    return;
  }
  for (const Model& model : tiny_models()) {
    const Subject subject = model.make();
    for (const Mode mode : {Mode::kInfer, Mode::kTrain}) {
      measure_shadow(context, subject, mode);
    }
  }
}

} // namespace

Suite shadow_suite() {
  return {"trace", {"shadow"}, run, /*one_thread=*/true};
}

} // namespace bench
