// Text as training data: loading, splitting, encoding, cutting into batches.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace char_gpt {

/// A text in two parts, free of control characters other than line feed and
/// tab.
struct Text {
  std::string source; ///< For people: which files, how large.
  std::string train;
  std::string validation; ///< The last tenth of each file.

  /// Of all characters, to recognise the text again.
  uint64_t fingerprint() const;
};

/// The plain-text files of a folder in sorted order, without `*.dat`, links
/// (`*.u8`), and what is no text. Throws examples::UsageError.
Text load_folder(const std::string& folder);
/// One plain-text file. Throws examples::UsageError.
Text load_file(const std::string& path);
/// The file, or with an empty `path` the texts of Debian's package `fortunes`.
Text load_text(const std::string& path);

/// The characters (bytes) of a text, numbered in ascending order.
class Vocabulary {
 public:
  explicit Vocabulary(const Text& text);
  int64_t size() const;
  /// Throws std::out_of_range for a character that the text does not have.
  std::vector<uint8_t> encode(const std::string& text) const;
  std::string decode(const std::vector<uint8_t>& tokens) const;
  bool has(char c) const;

 private:
  std::string characters_;
  std::array<int, 256> ids_;
};

/// Tokens and, one to the left, those that follow them: [batch, block], int64.
struct Batch {
  torch::Tensor tokens;
  torch::Tensor targets;
};

/// A sequence of tokens, cut into windows.
class Windows {
 public:
  /// Throws examples::UsageError if no window fits. `part` is for its message.
  Windows(
      const std::string& part,
      std::vector<uint8_t> tokens,
      int64_t batch,
      int64_t block);
  /// At random positions.
  Batch draw(std::mt19937_64& random) const;
  /// `count` batches, their windows spread evenly over the sequence.
  std::vector<Batch> spread(int64_t count) const;

 private:
  Batch cut(const std::vector<size_t>& positions) const;

  std::vector<uint8_t> tokens_;
  int64_t batch_;
  int64_t block_;
};

} // namespace char_gpt
