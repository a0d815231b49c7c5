// A run that is saved, loaded and continued equals one that went on.
#include "char_gpt/checkpoint.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <temper/temper.h>

#include "small_run.h"
#include "temporary_folder.h"

namespace char_gpt {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class Checkpoint : public examples::TemporaryFolder {
 protected:
  std::string load_error(const json& identity) const {
    TrainingRun run = small_run();
    return examples::usage_error(
        [&] { load_checkpoint(path_, run, identity); });
  }

  std::string path_ = path("run.pt");
};

TEST_F(Checkpoint, ResumedRunHasTheSameLossesBitForBit) {
  TrainingRun run = small_run();
  train(run, 4);
  save_checkpoint(path_, run, {{"seed", 1}});
  EXPECT_FALSE(fs::exists(path_ + ".tmp"));
  train(run, 5);

  TrainingRun resumed = small_run();
  train(resumed, 2); // whatever it did before must not matter
  load_checkpoint(path_, resumed, {{"seed", 1}});
  EXPECT_EQ(resumed.step, 4);
  temper::reset_counters();
  train(resumed, 5);
  EXPECT_EQ(temper::counters().program_backwards, 5);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(run.trainers[i]->losses, resumed.trainers[i]->losses);
  }
}

TEST_F(Checkpoint, SidesAreEqualAndLeaveTheDefaultGeneratorAlone) {
  TrainingRun run = small_run();
  torch::manual_seed(5);
  const torch::Tensor expected = torch::rand(3);
  torch::manual_seed(5);
  train(run, 3);
  EXPECT_TRUE(torch::equal(torch::rand(3), expected));
  EXPECT_EQ(run.trainers[0]->losses, run.trainers[1]->losses);
}

TEST_F(Checkpoint, NamesTheOptionThatDiffers) {
  save_checkpoint(
      path_, small_run(), {{"width", 64}, {"mode", "both"}, {"text", 1}});
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
  save_checkpoint(path_, small_run(), json::object());
  fs::resize_file(path_, fs::file_size(path_) / 2);
  EXPECT_THAT(load_error({}), HasSubstr("is no checkpoint"));
  // Somebody else's archive.
  torch::save(torch::ones(3), path_);
  EXPECT_THAT(load_error({}), HasSubstr("is no checkpoint"));
}

TEST_F(Checkpoint, FailedWriteKeepsTheOldFile) {
  save_checkpoint(path_, small_run(), json::object());
  const auto size = fs::file_size(path_);
  // The temporary's name is taken by a folder.
  fs::create_directory(path_ + ".tmp");
  fs::create_directory(path_ + ".tmp/x");
  EXPECT_ANY_THROW(save_checkpoint(path_, small_run(), json::object()));
  EXPECT_EQ(fs::file_size(path_), size);
}

} // namespace
} // namespace char_gpt
