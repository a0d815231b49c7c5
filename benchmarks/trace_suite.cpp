// What a traced call costs: the first of a signature.
#include "models.h"
#include "suites.h"

namespace bench {

namespace {

void measure_trace(const Context& context, const Subject& subject, Mode mode) {
  const ModeScope scope(subject, mode);
  const auto eager = [&] { step(subject, mode, subject.eager); };
  eager();
  FreshSite site(subject);
  const auto traced = [&] { step(subject, mode, site.net().call); };
  temper::reset_counters();
  const double cold = time_once(traced);
  const bool compiled = temper::counters().compiles > 0;
  temper::reset_counters();
  const auto samples =
      interleave(context.timing, {{traced, [&] { site.forget(); }}, {eager}});
  Row row = make_row("trace", subject.name, mode, samples);
  require(
      row,
      row.counters.traces == row.counters.calls && row.counters.compiles == 0,
      "each call traced and nothing compiled");
  row.extra = {{"us_cold", nullptr}};
  if (compiled) {
    row.extra["us_cold"] = cold;
    row.note = "with its compile, once: " + microseconds(cold);
  }
  context.emit(row);
}

void run(const Context& context) {
  constexpr Mode kModes[] = {Mode::kInfer, Mode::kTrain};
  for (const Model& model : ordinary_models()) {
    if (context.wanted(model.name)) {
      const Subject subject = model.make();
      for (const Mode mode : kModes) {
        measure_trace(context, subject, mode);
      }
    }
  }
}

} // namespace

Suite trace_suite() {
  std::vector<std::string> names;
  for (const Model& model : ordinary_models()) {
    names.emplace_back(model.name);
  }
  return {"trace", names, run};
}

} // namespace bench
