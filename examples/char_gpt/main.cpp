// char_gpt: trains a GPT on text, eagerly and compiled, and compares.
#include <algorithm>
#include <iomanip>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <temper/temper.h>
#include <torch/torch.h>

#include "char_gpt/checkpoint.h"
#include "char_gpt/data.h"
#include "char_gpt/model.h"
#include "char_gpt/options.h"
#include "char_gpt/report.h"
#include "char_gpt/sample.h"
#include "char_gpt/schedule.h"
#include "char_gpt/trainer.h"
#include "common/atomic_file.h"
#include "common/progress.h"
#include "common/run_main.h"

namespace char_gpt {

namespace {

constexpr int64_t kValidationBatches = 8;
constexpr size_t kSamplesShown = 2;

TrainingRun make_run(const Options& options, const GptConfig& config) {
  TrainingRun run;
  run.batches.seed(options.seed);
  if (options.mode != Mode::kCompiled) {
    run.trainers.push_back(
        std::make_unique<Trainer>("eager", options, config, false));
  }
  if (options.mode != Mode::kEager) {
    run.trainers.push_back(
        std::make_unique<Trainer>("compiled", options, config, true));
  }
  return run;
}

/// Loss and speed, the sides in their order.
std::string note(const TrainingRun& run, const Options& options) {
  std::ostringstream losses;
  std::ostringstream speeds;
  losses << std::fixed << std::setprecision(3) << "loss";
  speeds << std::fixed << std::setprecision(0);
  const char* between = " ";
  for (const auto& trainer : run.trainers) {
    losses << between << trainer->losses.back();
    if (const auto rate = tokens_per_second(*trainer, options)) {
      speeds << between << *rate;
    }
    between = " | ";
  }
  const std::string speed = speeds.str();
  return losses.str() + (speed.empty() ? "" : ", tokens/s" + speed);
}

std::string details(const TrainingRun& run, double rate) {
  std::ostringstream out;
  out << "step " << run.step << "  lr " << rate << std::setprecision(9);
  for (const auto& trainer : run.trainers) {
    out << "  " << trainer->name() << ' ' << trainer->losses.back();
  }
  return out.str();
}

/// One step of each side on the same batch. They take turns at going first:
/// the second finds the batch in the cache.
void step(TrainingRun& run, const Windows& train, double rate) {
  const Batch batch = train.draw(run.batches);
  const size_t sides = run.trainers.size();
  for (size_t i = 0; i < sides; ++i) {
    const size_t side = (i + static_cast<size_t>(run.step)) % sides;
    run.trainers[side]->train(batch, rate);
  }
  ++run.step;
}

void train_all(
    TrainingRun& run,
    const Options& options,
    const Schedule& schedule,
    const Windows& train,
    const std::vector<Batch>& validation,
    const nlohmann::json& identity) {
  examples::Progress progress("step", run.step, options.steps);
  while (run.step < options.steps) {
    const double rate = schedule.rate(run.step);
    step(run, train, rate);
    const bool last = run.step == options.steps;
    if (last || run.step % options.eval_every == 0) {
      for (const auto& trainer : run.trainers) {
        trainer->validate(validation);
      }
      run.validation_steps.push_back(run.step);
    }
    if (!options.checkpoint.empty() &&
        (last || run.step % options.checkpoint_every == 0)) {
      save_checkpoint(options.checkpoint, run, identity);
    }
    if (options.verbose) {
      progress.print(details(run, rate));
    }
    progress.show(run.step, note(run, options));
  }
}

void print_sample(
    TrainingRun& run,
    const Options& options,
    const Vocabulary& vocabulary) {
  Trainer& trainer = *run.trainers.back();
  std::vector<std::string> texts;
  {
    examples::Progress progress("character", 0, options.sample);
    texts = sample(
        trainer.model,
        vocabulary,
        options.batch,
        options.sample,
        options.seed,
        [&](int64_t done) { progress.show(done, "of the sample"); });
  }
  std::cout << "\nsample of the " << trainer.name() << " model\n";
  for (size_t i = 0; i < std::min(kSamplesShown, texts.size()); ++i) {
    std::cout << "--------\n" << printable(texts[i]) << '\n';
  }
  std::cout << "--------\n\n";
}

int run_program(Options options) {
  if (options.threads == 0) {
    options.threads = torch::get_num_threads();
  }
  torch::set_num_threads(options.threads);
  const Text text = load_text(options.text);
  const Vocabulary vocabulary(text);
  const Windows train(
      "training", vocabulary.encode(text.train), options.batch, options.block);
  const std::vector<Batch> validation = Windows(
                                            "validation",
                                            vocabulary.encode(text.validation),
                                            options.batch,
                                            options.block)
                                            .spread(kValidationBatches);
  const GptConfig config{
      .vocabulary = vocabulary.size(),
      .block = options.block,
      .layers = options.layers,
      .heads = options.heads,
      .width = options.width,
      .dropout = options.dropout};
  const Schedule schedule = Schedule::over(options.steps, options.lr);
  nlohmann::json known = identity(options);
  known["text"] = text.fingerprint();

  TrainingRun run = make_run(options, config);
  int64_t parameters = 0;
  for (const torch::Tensor& p : run.trainers[0]->model->parameters()) {
    parameters += p.numel();
  }
  std::cout << "text: " << text.source << ", " << vocabulary.size()
            << " different characters\nmodel: " << config.layers
            << " layers, width " << config.width << ", " << config.heads
            << " heads, " << parameters << " parameters; steps of "
            << options.batch << " x " << options.block
            << " characters; threads: " << options.threads << '\n';
  if (!options.resume.empty()) {
    load_checkpoint(options.resume, run, known);
    std::cout << "resumed from " << options.resume << " at step " << run.step
              << '\n';
  }
  std::cout << "training:";
  for (const auto& trainer : run.trainers) {
    std::cout << (trainer == run.trainers.front() ? " " : " | ")
              << trainer->name();
  }
  std::cout << std::endl;

  temper::reset_counters();
  train_all(run, options, schedule, train, validation, known);
  if (options.sample > 0) {
    print_sample(run, options, vocabulary);
  }
  const temper::Counters counters = temper::counters();
  print_table(std::cout, run, options, schedule, counters);
  if (options.verbose && run.trainers.back()->compiled()) {
    std::cout << '\n' << temper::explain(run.trainers.back()->model);
  }
  if (!options.json.empty()) {
    examples::write_atomically(
        options.json, to_json(run, options, counters).dump(2) + '\n');
  }
  // Both backends give eager's bits, so any difference is a fault.
  if (const auto largest = max_relative_difference(run);
      largest && *largest != 0.0) {
    std::cerr << "char_gpt: the compiled losses differ from eager's, by at "
                 "most "
              << *largest << " (relative), expected no difference; please "
              << "report it with the options and the text\n";
    return 1;
  }
  return 0;
}

} // namespace

} // namespace char_gpt

int main(int argc, char** argv) {
  return examples::run_main("char_gpt", [&] {
    const auto options = char_gpt::parse_options(argc, argv);
    return options ? char_gpt::run_program(*options) : 0;
  });
}
