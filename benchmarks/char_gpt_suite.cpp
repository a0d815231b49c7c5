// A training step of the example char_gpt, as the example takes it.
#include "char_gpt/options.h"
#include "char_gpt/trainer.h"
#include "suites.h"

namespace bench {

namespace {

void run(const Context& context) {
  if (!context.wanted("gpt")) {
    return;
  }
  const char_gpt::Options options;
  const char_gpt::GptConfig config = {
      .vocabulary = 96,
      .block = options.block,
      .layers = options.layers,
      .heads = options.heads,
      .width = options.width,
      .dropout = options.dropout};
  torch::manual_seed(options.seed);
  const auto tokens = [&] {
    return torch::randint(
        config.vocabulary, {options.batch, options.block}, torch::kLong);
  };
  const char_gpt::Batch batch = {tokens(), tokens()};
  char_gpt::Trainer eager("eager", options, config, /*compiled=*/false);
  char_gpt::Trainer compiled("compiled", options, config, /*compiled=*/true);
  constexpr double kRate = 1e-4;
  temper::reset_counters();
  const auto samples = interleave(
      context.timing, {{[&] { compiled.train(batch, kRate); }}, {[&] {
                         eager.train(batch, kRate);
                       }}});
  Row row = make_row("char_gpt", "gpt", Mode::kTrain, samples);
  require_programs(row);
  // Beside parameters, buffers and optimizer state, which are equal.
  const auto bytes = compiled.step_bytes();
  const auto bytes_peer = eager.step_bytes();
  if (bytes && bytes_peer) {
    row.extra = {
        {"peak_bytes_temper", *bytes}, {"peak_bytes_peer", *bytes_peer}};
    row.note = "peak MB " + microseconds(static_cast<double>(*bytes) / 1e6) +
        ", eager " + microseconds(static_cast<double>(*bytes_peer) / 1e6);
  }
  context.emit(row);
}

} // namespace

Suite char_gpt_suite() {
  return {"char_gpt", {"gpt"}, run};
}

} // namespace bench
