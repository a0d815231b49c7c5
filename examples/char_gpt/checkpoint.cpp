// A checkpoint: LibTorch's archive, with everything but tensors as JSON in it.
#include "char_gpt/checkpoint.h"

#include <algorithm>
#include <exception>
#include <sstream>

#include <torch/serialize.h>

#include "common/atomic_file.h"
#include "common/run_main.h"

namespace char_gpt {

namespace {

using examples::UsageError;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kRemedy =
    "; expected a file written by char_gpt --checkpoint; name another, or "
    "leave --resume out to start afresh";

void check_identity(
    const std::string& path,
    const json& found,
    const json& expected) {
  for (const auto& [name, value] : expected.items()) {
    const json saved = found.value(name, json());
    if (saved == value) {
      continue;
    }
    if (name == "text") {
      throw UsageError(
          "--resume '" + path + "': it was trained on another text, found " +
          value.dump() + ", expected " + saved.dump() +
          "; give --text as it was then");
    }
    throw UsageError(
        "--resume '" + path + "': found --" + name + ' ' + value.dump() +
        ", expected " + saved.dump() + ", with which it was written; pass --" +
        name + ' ' +
        (saved.is_string() ? saved.get<std::string>() : saved.dump()));
  }
}

/// `reason` is cut after its first sentence: LibTorch adds advice of its own.
[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw UsageError(
      "--resume '" + path + "' is no checkpoint: " +
      reason.substr(0, std::min(reason.find('\n'), reason.find(". "))) +
      kRemedy);
}

json read_meta(torch::serialize::InputArchive& archive) {
  c10::IValue meta;
  archive.read("meta", meta);
  return json::parse(meta.toStringRef());
}

void load(const std::string& path, TrainingRun& run, const json& identity) {
  torch::serialize::InputArchive archive;
  archive.load_from(path);
  const json meta = read_meta(archive);
  if (meta.at("format") != kFormat) {
    throw UsageError(
        "--resume '" + path + "': found format " + meta.at("format").dump() +
        ", expected " + std::to_string(kFormat) +
        "; it is of another version of char_gpt: train again");
  }
  check_identity(path, meta.at("identity"), identity);

  run.step = meta.at("step");
  std::istringstream(meta.at("batches").get<std::string>()) >> run.batches;
  run.validation_steps =
      meta.at("validation_steps").get<std::vector<int64_t>>();
  for (const auto& trainer : run.trainers) {
    torch::serialize::InputArchive part;
    archive.read(trainer->name(), part);
    torch::serialize::InputArchive model;
    part.read("model", model);
    trainer->model->load(model);
    torch::serialize::InputArchive optimizer;
    part.read("optimizer", optimizer);
    trainer->optimizer->load(optimizer);
    part.read("generator", trainer->generator_state, /*is_buffer=*/true);
    const json& numbers = meta.at(trainer->name());
    trainer->losses = numbers.at("losses").get<std::vector<double>>();
    trainer->validation = numbers.at("validation").get<std::vector<double>>();
  }
}

} // namespace

void save_checkpoint(
    const std::string& path,
    const TrainingRun& run,
    const json& identity) {
  std::ostringstream batches;
  batches << run.batches;
  json meta = {
      {"format", kFormat},
      {"identity", identity},
      {"step", run.step},
      {"batches", batches.str()},
      {"validation_steps", run.validation_steps}};
  torch::serialize::OutputArchive archive;
  for (const auto& trainer : run.trainers) {
    torch::serialize::OutputArchive model;
    trainer->model->save(model);
    torch::serialize::OutputArchive optimizer;
    trainer->optimizer->save(optimizer);
    torch::serialize::OutputArchive part;
    part.write("model", model);
    part.write("optimizer", optimizer);
    part.write("generator", trainer->generator_state, /*is_buffer=*/true);
    archive.write(trainer->name(), part);
    meta[trainer->name()] = {
        {"losses", trainer->losses}, {"validation", trainer->validation}};
  }
  archive.write("meta", c10::IValue(meta.dump()));
  examples::write_atomically(
      path, [&](const std::string& temporary) { archive.save_to(temporary); });
}

void load_checkpoint(
    const std::string& path,
    TrainingRun& run,
    const json& identity) {
  examples::check_readable("--resume", path);
  try {
    load(path, run, identity);
  } catch (const UsageError&) {
    throw;
  } catch (const c10::Error& e) {
    refuse(path, e.what_without_backtrace());
  } catch (const std::exception& e) {
    // LibTorch's reader and the JSON parser have types of their own.
    refuse(path, e.what());
  }
}

} // namespace char_gpt
