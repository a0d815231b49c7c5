// Loading of texts and cutting of batches.
#include "char_gpt/data.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "common/run_main.h"

namespace char_gpt {

namespace {

namespace fs = std::filesystem;
using examples::UsageError;

constexpr const char* kFortunes = "/usr/share/games/fortunes";

std::string read(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string content{
      std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.good() && !file.eof()) {
    throw UsageError(
        "cannot read '" + path +
        "': " + (errno != 0 ? std::strerror(errno) : "reading failed") +
        "; expected a plain text; check its name and mode");
  }
  return content;
}

bool is_text(const std::string& content) {
  return content.find('\0') == std::string::npos;
}

void add(const std::string& content, Text& text) {
  std::string plain;
  plain.reserve(content.size());
  // The fortunes hold some overstrikes and bells, other texts \r\n.
  std::copy_if(
      content.begin(), content.end(), std::back_inserter(plain), [](char c) {
        const auto code = static_cast<unsigned char>(c);
        return c == '\n' || c == '\t' || (code >= 32 && code != 127);
      });
  const size_t cut = plain.size() / 10 * 9;
  text.train.append(plain, 0, cut);
  text.validation.append(plain, cut, std::string::npos);
}

std::string megabytes(const Text& text) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(2)
      << static_cast<double>(text.train.size() + text.validation.size()) / 1e6
      << " MB";
  return out.str();
}

} // namespace

uint64_t Text::fingerprint() const {
  // FNV-1a.
  uint64_t hash = 14695981039346656037U;
  for (const std::string* part : {&train, &validation}) {
    for (const char c : *part) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
    }
  }
  return hash;
}

Text load_folder(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.is_regular_file() && !entry.is_symlink() &&
        entry.path().extension() != ".dat" &&
        entry.path().extension() != ".u8") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  Text text;
  size_t used = 0;
  for (const fs::path& file : files) {
    const std::string content = read(file.string());
    if (is_text(content)) {
      add(content, text);
      ++used;
    }
  }
  if (used == 0) {
    throw UsageError(
        "no text in '" + folder +
        "': " + (error ? error.message() : "found no plain-text file") +
        "; expected the texts of Debian's package fortunes; install it "
        "(apt-get install fortunes), or pass --text FILE");
  }
  text.source =
      folder + ", " + std::to_string(used) + " files, " + megabytes(text);
  return text;
}

Text load_file(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw UsageError(
        "--text '" + path +
        "' does not exist; expected a plain-text file; "
        "correct the name, or leave --text out to use Debian's fortunes");
  }
  if (fs::is_directory(path, error)) {
    throw UsageError(
        "--text '" + path +
        "' is a folder; expected a plain-text file; name "
        "one, or leave --text out to use Debian's fortunes");
  }
  const std::string content = read(path);
  if (!is_text(content)) {
    throw UsageError(
        "--text '" + path + "' is no text: found a zero byte at offset " +
        std::to_string(content.find('\0')) +
        "; expected plain text in an 8-bit encoding or UTF-8; convert it");
  }
  Text text;
  add(content, text);
  text.source = path + ", " + megabytes(text);
  return text;
}

Text load_text(const std::string& path) {
  return path.empty() ? load_folder(kFortunes) : load_file(path);
}

Vocabulary::Vocabulary(const Text& text) : ids_{} {
  std::array<bool, 256> seen{};
  for (const std::string* part : {&text.train, &text.validation}) {
    for (const char c : *part) {
      seen[static_cast<unsigned char>(c)] = true;
    }
  }
  ids_.fill(-1);
  for (size_t code = 0; code < seen.size(); ++code) {
    if (seen[code]) {
      ids_[code] = static_cast<int>(characters_.size());
      characters_ += static_cast<char>(code);
    }
  }
}

int64_t Vocabulary::size() const {
  return static_cast<int64_t>(characters_.size());
}

bool Vocabulary::has(char c) const {
  return ids_[static_cast<unsigned char>(c)] >= 0;
}

std::vector<uint8_t> Vocabulary::encode(const std::string& text) const {
  std::vector<uint8_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) {
    if (!has(c)) {
      throw std::out_of_range(
          "character " + std::to_string(static_cast<unsigned char>(c)) +
          " is not in the vocabulary");
    }
    tokens.push_back(static_cast<uint8_t>(ids_[static_cast<unsigned char>(c)]));
  }
  return tokens;
}

std::string Vocabulary::decode(const std::vector<uint8_t>& tokens) const {
  std::string text;
  for (const uint8_t token : tokens) {
    text += characters_.at(token);
  }
  return text;
}

Windows::Windows(
    const std::string& part,
    std::vector<uint8_t> tokens,
    int64_t batch,
    int64_t block)
    : tokens_(std::move(tokens)), batch_(batch), block_(block) {
  if (static_cast<int64_t>(tokens_.size()) < block + 1) {
    throw UsageError(
        "the " + part + " part of the text has " +
        std::to_string(tokens_.size()) +
        " characters; expected more than "
        "--block " +
        std::to_string(block) +
        " of them; take a longer text or a smaller block");
  }
}

Batch Windows::draw(std::mt19937_64& random) const {
  // Not std::uniform_int_distribution, whose numbers differ by library.
  const auto starts = tokens_.size() - static_cast<size_t>(block_);
  std::vector<size_t> positions(static_cast<size_t>(batch_));
  for (size_t& position : positions) {
    position = random() % starts;
  }
  return cut(positions);
}

std::vector<Batch> Windows::spread(int64_t count) const {
  const auto starts = tokens_.size() - static_cast<size_t>(block_);
  const auto windows = static_cast<size_t>(count * batch_);
  std::vector<Batch> batches;
  std::vector<size_t> positions;
  for (size_t i = 0; i < windows; ++i) {
    positions.push_back(starts * i / windows);
    if (static_cast<int64_t>(positions.size()) == batch_) {
      batches.push_back(cut(positions));
      positions.clear();
    }
  }
  return batches;
}

Batch Windows::cut(const std::vector<size_t>& positions) const {
  Batch out{
      torch::empty({batch_, block_}, torch::kLong),
      torch::empty({batch_, block_}, torch::kLong)};
  auto tokens = out.tokens.accessor<int64_t, 2>();
  auto targets = out.targets.accessor<int64_t, 2>();
  for (int64_t row = 0; row < batch_; ++row) {
    const uint8_t* from = tokens_.data() + positions[static_cast<size_t>(row)];
    for (int64_t column = 0; column < block_; ++column) {
      tokens[row][column] = from[column];
      targets[row][column] = from[column + 1];
    }
  }
  return out;
}

} // namespace char_gpt
