// Small models, calls that are admitted: what is won or lost in every call.
#include "models.h"
#include "suites.h"

namespace bench {

namespace {

void run(const Context& context) {
  for (const Model& model : small_models()) {
    if (!context.wanted(model.name)) {
      continue;
    }
    const Subject subject = model.make();
    for (const Mode mode : {Mode::kInfer, Mode::kTrain}) {
      const ModeScope scope(subject, mode);
      const CompiledNet compiled = subject.compile();
      temper::reset_counters();
      const auto samples = interleave(
          context.timing, {{[&] { step(subject, mode, compiled.call); }}, {[&] {
                             step(subject, mode, subject.eager);
                           }}});
      const Row row = make_row("models", model.name, mode, samples);
      require_programs(row);
      context.emit(row);
    }
  }
}

} // namespace

Suite models_suite() {
  std::vector<std::string> names;
  for (const Model& model : small_models()) {
    names.emplace_back(model.name);
  }
  return {"models", names, run};
}

} // namespace bench
