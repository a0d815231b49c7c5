// A run that is saved, loaded and continued equals one that went on.
#include "char_gpt/checkpoint.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "common/run_main.h"

namespace char_gpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class Checkpoint : public testing::Test {
 protected:
  Checkpoint()
      : folder_(
            fs::temp_directory_path() /
            ("char_gpt_checkpoint_" + std::to_string(::getpid()))),
        path_((folder_ / "run.pt").string()) {
    fs::create_directory(folder_);
    options_.batch = 2;
    options_.block = 8;
    options_.lr = 1e-2;
    options_.dropout = 0.3;
  }
  ~Checkpoint() override {
    fs::remove_all(folder_);
  }

  TrainingRun make() const {
    const GptConfig config{5, 8, 2, 2, 8, options_.dropout};
    TrainingRun run;
    run.batches.seed(7);
    for (const char* name : {"eager", "compiled"}) {
      // Both sides eager: this is about the file.
      run.trainers.push_back(
          std::make_unique<Trainer>(name, options_, config, false));
    }
    return run;
  }

  static void train(TrainingRun& run, int64_t steps) {
    std::vector<uint8_t> tokens(100);
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<uint8_t>(i * i % 5);
    }
    const Windows windows("training", tokens, 2, 8);
    for (int64_t i = 0; i < steps; ++i) {
      const Batch batch = windows.draw(run.batches);
      for (const auto& trainer : run.trainers) {
        trainer->train(batch, 1e-2);
      }
      ++run.step;
    }
  }

  std::string load_error(const json& identity) const {
    TrainingRun run = make();
    try {
      load_checkpoint(path_, run, identity);
    } catch (const examples::UsageError& e) {
      return e.what();
    }
    ADD_FAILURE() << "no UsageError";
    return {};
  }

  fs::path folder_;
  std::string path_;
  Options options_;
};

TEST_F(Checkpoint, ResumedRunHasTheSameLossesBitForBit) {
  TrainingRun run = make();
  train(run, 4);
  save_checkpoint(path_, run, {{"seed", 1}});
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
  train(run, 5);

  TrainingRun resumed = make();
  train(resumed, 2); // whatever it did before must not matter
  load_checkpoint(path_, resumed, {{"seed", 1}});
  EXPECT_EQ(resumed.step, 4);
  train(resumed, 5);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(run.trainers[i]->losses, resumed.trainers[i]->losses);
  }
}

TEST_F(Checkpoint, SidesAreEqualAndLeaveTheDefaultGeneratorAlone) {
  TrainingRun run = make();
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand(3);
  torch::manual_seed(5);
  train(run, 3);
  EXPECT_TRUE(torch::equal(torch::rand(3), expected));
  EXPECT_EQ(run.trainers[0]->losses, run.trainers[1]->losses);
}

TEST_F(Checkpoint, NamesTheOptionThatDiffers) {
  save_checkpoint(
      path_, make(), {{"width", 64}, {"mode", "both"}, {"text", 1}});
  EXPECT_THAT(
      load_error({{"width", 128}, {"mode", "both"}, {"text", 1}}),
      HasSubstr("pass --width 64"));
  EXPECT_THAT(
      load_error({{"width", 64}, {"mode", "eager"}, {"text", 1}}),
      HasSubstr("pass --mode both"));
  EXPECT_THAT(
      load_error({{"width", 64}, {"mode", "both"}, {"text", 2}}),
      HasSubstr("another text"));
}

TEST_F(Checkpoint, RefusesWhatIsNone) {
  EXPECT_THAT(load_error({}), HasSubstr("no such file"));
  std::ofstream(path_) << "hello";
  EXPECT_THAT(load_error({}), HasSubstr("is no checkpoint"));
  // A torn file.
  fs::remove(path_);
  save_checkpoint(path_, make(), json::object());
  fs::resize_file(path_, fs::file_size(path_) / 2);
  EXPECT_THAT(load_error({}), HasSubstr("is no checkpoint"));
  // Somebody else's archive.
  torch::save(torch::ones(3), path_);
  EXPECT_THAT(load_error({}), HasSubstr("is no checkpoint"));
}

TEST_F(Checkpoint, FailedWriteKeepsTheOldFile) {
  save_checkpoint(path_, make(), json::object());
  const auto size = fs::file_size(path_);
  // The temporary's name is taken by a folder.
  fs::create_directory(path_ + ".tmp");
  fs::create_directory(path_ + ".tmp/x");
  EXPECT_ANY_THROW(save_checkpoint(path_, make(), json::object()));
  EXPECT_EQ(fs::file_size(path_), size);
}

} // namespace
} // namespace char_gpt
