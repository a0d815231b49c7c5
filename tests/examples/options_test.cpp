// The command line of char_gpt: what is read, what is refused and how.
#include "char_gpt/options.h"

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace char_gpt {
namespace {

namespace fs = std::filesystem;
using examples::usage_error;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

using Words = std::vector<std::string>;

std::optional<Options> parse(Words words) {
  words.insert(words.begin(), "char_gpt");
  std::vector<const char*> argv;
  for (const std::string& word : words) {
    argv.push_back(word.c_str());
  }
  return parse_options(static_cast<int>(argv.size()), argv.data());
}

std::string error(const Words& words) {
  return usage_error([&] { parse(words); });
}

class CommandLine : public examples::TemporaryFolder {};

TEST_F(CommandLine, AreAllRead) {
  const std::string resume = write("resume.pt", "");
  const std::optional<Options> o = parse({"--mode",
                                          "compiled",
                                          "--backend",
                                          "eager",
                                          "--numerics",
                                          "fast",
                                          "--text",
                                          "text.txt",
                                          "--steps",
                                          "11",
                                          "--batch",
                                          "12",
                                          "--block",
                                          "13",
                                          "--layers",
                                          "14",
                                          "--heads",
                                          "15",
                                          "--width",
                                          "150",
                                          "--dropout",
                                          "0.25",
                                          "--lr",
                                          "0.5",
                                          "--seed",
                                          "16",
                                          "--threads",
                                          "17",
                                          "--eval-every",
                                          "18",
                                          "--sample",
                                          "19",
                                          "--checkpoint",
                                          path("run.pt"),
                                          "--checkpoint-every",
                                          "20",
                                          "--resume",
                                          resume,
                                          "--json",
                                          path("run.json"),
                                          "--verbose"});
  ASSERT_TRUE(o);
  EXPECT_EQ(o->mode, Mode::kCompiled);
  EXPECT_EQ(o->backend, "eager");
  EXPECT_EQ(o->numerics, "fast");
  EXPECT_EQ(o->text, "text.txt");
  EXPECT_EQ(o->steps, 11);
  EXPECT_EQ(o->batch, 12);
  EXPECT_EQ(o->block, 13);
  EXPECT_EQ(o->layers, 14);
  EXPECT_EQ(o->heads, 15);
  EXPECT_EQ(o->width, 150);
  EXPECT_EQ(o->dropout, 0.25);
  EXPECT_EQ(o->lr, 0.5);
  EXPECT_EQ(o->seed, 16U);
  EXPECT_EQ(o->threads, 17);
  EXPECT_EQ(o->eval_every, 18);
  EXPECT_EQ(o->sample, 19);
  EXPECT_EQ(o->checkpoint, path("run.pt"));
  EXPECT_EQ(o->checkpoint_every, 20);
  EXPECT_EQ(o->resume, resume);
  EXPECT_EQ(o->json, path("run.json"));
  EXPECT_TRUE(o->verbose);
}

TEST_F(CommandLine, HaveDefaults) {
  const std::optional<Options> o = parse({});
  ASSERT_TRUE(o);
  const Options expected;
  EXPECT_EQ(identity(*o), identity(expected));
  EXPECT_EQ(o->mode, Mode::kBoth);
  EXPECT_EQ(o->backend, "aten");
  EXPECT_EQ(o->numerics, "accurate");
  EXPECT_EQ(o->steps, 300);
  EXPECT_FALSE(o->verbose);
  for (const std::string& file : {o->text, o->checkpoint, o->resume, o->json}) {
    EXPECT_EQ(file, "");
  }
}

TEST_F(CommandLine, TheLastOfSeveralCounts) {
  EXPECT_EQ(parse({"--steps", "3", "--mode=eager", "--steps=5"})->steps, 5);
  EXPECT_EQ(parse({"--mode", "compiled", "--mode=eager"})->mode, Mode::kEager);
}

TEST_F(CommandLine, HelpNamesThemAndTheirDefaults) {
  testing::internal::CaptureStdout();
  const std::optional<Options> o = parse({"--help"});
  const std::string help = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(o);
  for (const char* option : {"--mode",   "--backend",    "--numerics",
                             "--text",   "--steps",      "--batch",
                             "--block",  "--layers",     "--heads",
                             "--width",  "--dropout",    "--lr",
                             "--seed",   "--threads",    "--eval-every",
                             "--sample", "--checkpoint", "--checkpoint-every",
                             "--resume", "--json",       "--verbose"}) {
    EXPECT_THAT(help, HasSubstr(option));
  }
  EXPECT_THAT(help, HasSubstr("300"));
}

// A line with the option, the value, and where to look.
TEST_F(CommandLine, RefuseWhatIsOutOfRange) {
  const std::vector<Words> wrong = {
      {"--mode", "fast"},      {"--backend", "llvm"},
      {"--numerics", "exact"}, {"--steps", "0"},
      {"--steps", "1000001"},  {"--steps", "1.5"},
      {"--steps", "many"},     {"--batch", "0"},
      {"--batch", "4097"},     {"--block", "1"},
      {"--block", "4097"},     {"--layers", "0"},
      {"--layers", "65"},      {"--heads", "0"},
      {"--heads", "65"},       {"--width", "0"},
      {"--width", "4097"},     {"--dropout", "-0.1"},
      {"--dropout", "0.96"},   {"--lr", "-1"},
      {"--lr", "10.5"},        {"--lr", "inf"},
      {"--seed", "-1"},        {"--seed", "9223372036854775808"},
      {"--threads", "-1"},     {"--threads", "1025"},
      {"--eval-every", "0"},   {"--sample", "-1"},
      {"--sample", "1000001"}, {"--checkpoint-every", "0"}};
  for (const Words& words : wrong) {
    EXPECT_THAT(
        error(words),
        AllOf(
            HasSubstr(words[0]),
            HasSubstr(words[1]),
            HasSubstr("--help lists what there is"),
            Not(HasSubstr("\n"))));
  }
}

TEST_F(CommandLine, RefuseWhatIsNoNumber) {
  for (const char* option : {"--lr", "--dropout"}) {
    EXPECT_THAT(
        error({option, "nan"}),
        AllOf(HasSubstr(option), HasSubstr("is not a number")));
  }
}

TEST_F(CommandLine, RefuseWhatThereIsNot) {
  EXPECT_THAT(error({"--stepz", "3"}), HasSubstr("--stepz"));
  EXPECT_THAT(error({"3"}), HasSubstr("not expected: 3"));
  EXPECT_THAT(error({"--steps"}), HasSubstr("--steps"));
}

TEST_F(CommandLine, RefuseAWidthThatHeadsDoNotShare) {
  EXPECT_THAT(
      error({"--width", "130", "--heads", "4"}),
      AllOf(
          HasSubstr("--width 130"),
          HasSubstr("not divisible by --heads 4"),
          HasSubstr("choose a multiple")));
}

TEST_F(CommandLine, RefuseFilesThatCannotBeWritten) {
  for (const std::string option : {"--json", "--checkpoint"}) {
    EXPECT_THAT(
        error({option, path("none/run")}),
        AllOf(
            HasSubstr(option + " '" + path("none/run")),
            HasSubstr("'" + path("none") + "' is no folder; make it")));
    EXPECT_THAT(
        error({option, folder_.string()}),
        AllOf(HasSubstr(option), HasSubstr("it is a folder")));
    write("file", "");
    EXPECT_THAT(
        error({option, path("file/run")}), HasSubstr("is no folder; make it"));
  }
  // Nothing was left by looking.
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(CommandLine, RefuseACheckpointThatIsNotThere) {
  EXPECT_THAT(
      error({"--resume", path("none")}),
      AllOf(
          HasSubstr("--resume '" + path("none") + "'"),
          HasSubstr("there is no such file"),
          HasSubstr("leave --resume out")));
  EXPECT_THAT(
      error({"--resume", folder_.string()}), HasSubstr("it is a folder"));
}

} // namespace
} // namespace char_gpt
