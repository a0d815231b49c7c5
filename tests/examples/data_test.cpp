// Loading, splitting, encoding and cutting of texts; what a sample may show.
#include "char_gpt/data.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "char_gpt/sample.h"
#include "temporary_folder.h"

namespace char_gpt {
namespace {

namespace fs = std::filesystem;
using examples::usage_error;
using testing::HasSubstr;

class Data : public examples::TemporaryFolder {};

TEST_F(Data, TakesPlainTextsInSortedOrderAndHoldsOutATenthOfEach) {
  write("b", std::string(10, 'b'));
  write("a", std::string(20, 'a'));
  write("a.dat", "index");
  write("c", std::string("not\0text", 8));
  fs::create_symlink(folder_ / "a", folder_ / "a.u8");
  const Text text = load_folder(folder_.string());
  EXPECT_EQ(text.train, std::string(18, 'a') + std::string(9, 'b'));
  EXPECT_EQ(text.validation, "aab");
  EXPECT_THAT(text.source, HasSubstr("2 files"));
}

TEST_F(Data, DropsControlCharacters) {
  const std::string path =
      write("x", "a\r\nb\tc\b\x1b\x7f" + std::string(5, 'd'));
  EXPECT_EQ(load_file(path).train + load_file(path).validation, "a\nb\tcddddd");
}

TEST_F(Data, FingerprintTellsTextsApart) {
  const std::string letters(100, 'a');
  const Text a = load_file(write("a", letters));
  const Text b = load_file(write("b", letters + "b"));
  EXPECT_EQ(a.fingerprint(), load_file(write("c", letters)).fingerprint());
  EXPECT_NE(a.fingerprint(), b.fingerprint());
}

TEST_F(Data, SaysWhatIsWrongWithAFile) {
  EXPECT_THAT(
      usage_error([&] { load_file((folder_ / "none").string()); }),
      HasSubstr("does not exist"));
  EXPECT_THAT(
      usage_error([&] { load_file(folder_.string()); }),
      HasSubstr("is a folder"));
  const std::string binary = write("x", std::string("ab\0", 3));
  EXPECT_THAT(
      usage_error([&] { load_file(binary); }), HasSubstr("at offset 2"));
  EXPECT_THAT(
      usage_error([&] { load_folder((folder_ / "none").string()); }),
      HasSubstr("install it"));
  EXPECT_THAT(
      usage_error([&] {
        Windows("training", {1, 2, 3}, 1, 3);
      }),
      HasSubstr("has 3 characters"));
}

TEST_F(Data, EncodesAndDecodes) {
  const Vocabulary vocabulary(Text{"", "cab", "\xff"});
  EXPECT_EQ(vocabulary.size(), 4);
  EXPECT_EQ(vocabulary.encode("abc\xff"), (std::vector<uint8_t>{0, 1, 2, 3}));
  EXPECT_EQ(
      vocabulary.decode({3, 0}),
      "\xff"
      "a");
  EXPECT_FALSE(vocabulary.has('d'));
  EXPECT_THROW(vocabulary.encode("d"), std::out_of_range);
}

TEST_F(Data, TargetsFollowTokensAndDrawsRepeatWithTheirGenerator) {
  std::vector<uint8_t> tokens(50);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<uint8_t>(i);
  }
  const Windows windows("training", tokens, /*batch=*/4, /*block=*/8);
  std::mt19937_64 random(3);
  std::mt19937_64 again(3);
  for (int i = 0; i < 20; ++i) {
    const Batch batch = windows.draw(random);
    EXPECT_EQ(batch.tokens.sizes(), (std::vector<int64_t>{4, 8}));
    EXPECT_TRUE(torch::equal(batch.tokens + 1, batch.targets));
    EXPECT_TRUE(torch::equal(batch.tokens, windows.draw(again).tokens));
  }
}

TEST_F(Data, SpreadsValidationFromTheFirstWindow) {
  const Windows windows("validation", std::vector<uint8_t>(9), 2, 8);
  const auto batches = windows.spread(3);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches[2].targets.sizes(), (std::vector<int64_t>{2, 8}));
}

TEST(Printable, KeepsTextAndReplacesWhatATerminalCannotShow) {
  EXPECT_EQ(printable("a\tb\n~"), "a\tb\n~");
  EXPECT_EQ(printable("\x1b[2J\x7f"), "?[2J?");
  EXPECT_EQ(printable("\xc3\xa9 \xe2\x82\xac"), "\xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(printable("\xc3z\xa9\xe2\x82"), "?z???");
}

} // namespace
} // namespace char_gpt
