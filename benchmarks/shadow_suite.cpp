// What a shadowed call costs: the second of a signature, which proves the
// trace.
#include <regex>
#include <stdexcept>

#include "models.h"
#include "suites.h"

namespace bench {

namespace {

double forward_ops(const CompiledNet& net) {
  const std::string text = net.site.explain();
  std::smatch match;
  if (!std::regex_search(text, match, std::regex("([0-9]+) forward ops"))) {
    throw std::runtime_error("no number of forward ops in:\n" + text);
  }
  return std::stod(match[1]);
}

void measure_shadow(const Context& context, const Subject& subject, Mode mode) {
  const ModeScope scope(subject, mode);
  torch::Tensor output;
  // The backward of a timed forward call is not timed.
  const auto finish = [&] {
    if (mode == Mode::kTrain && output.defined()) {
      backward(subject, output);
    }
    output.reset();
  };
  FreshSite fresh(subject);
  const auto trace = [&] {
    finish();
    fresh.forget();
    step(subject, mode, fresh.net().call);
  };
  const CompiledNet known = subject.compile();
  const auto forward = [&](const auto& call) {
    return [&, call] { output = call(subject.input); };
  };
  temper::reset_counters();
  const auto samples = interleave(
      context.timing,
      {{forward(fresh.net().call), trace},
       {forward(subject.eager), finish},
       {forward(known.call), finish}});
  finish();
  const double ops = forward_ops(known);
  const double us_op = median_difference(samples[0], samples[2]) / ops;
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
      {"us_per_op", us_op}};
  row.note = subject.name + ": " + microseconds(us_op) + " an op; admitted " +
      microseconds(us_admitted);
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
