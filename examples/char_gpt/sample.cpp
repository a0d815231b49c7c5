// Sampling in a window of fixed size.
#include "char_gpt/sample.h"

#include <algorithm>

#include <ATen/CPUGeneratorImpl.h>

namespace char_gpt {

namespace {

constexpr double kTemperature = 0.8;

/// Bytes of the UTF-8 sequence that begins with this one; 0: none does.
size_t sequence_length(unsigned char first) {
  if (first >= 0xC2 && first <= 0xDF) {
    return 2;
  }
  if ((first & 0xF0) == 0xE0) {
    return 3;
  }
  return first >= 0xF0 && first <= 0xF4 ? 4 : 0;
}

bool continues(unsigned char byte) {
  return (byte & 0xC0) == 0x80;
}

} // namespace

std::vector<std::string> sample(
    Gpt& model,
    const Vocabulary& vocabulary,
    int64_t batch,
    int64_t length,
    uint64_t seed,
    const std::function<void(int64_t)>& shown) {
  const torch::NoGradGuard no_grad;
  model->eval();
  const int64_t block = model->config.block;
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  // Padding behind the text is not seen from within: attention is causal.
  torch::Tensor window = torch::zeros({batch, block}, torch::kLong);
  if (vocabulary.has('\n')) {
    window.select(1, 0).fill_(vocabulary.encode("\n")[0]);
  }
  int64_t filled = 1;
  std::vector<std::vector<uint8_t>> texts(static_cast<size_t>(batch));
  for (int64_t i = 0; i < length; ++i) {
    const torch::Tensor logits = model(window).select(1, filled - 1);
    const torch::Tensor next =
        torch::softmax(logits / kTemperature, -1)
            .multinomial(1, /*replacement=*/false, generator);
    if (filled == block) {
      window = torch::roll(window, -1, 1);
    } else {
      ++filled;
    }
    window.narrow(1, filled - 1, 1).copy_(next);
    for (int64_t row = 0; row < batch; ++row) {
      texts[static_cast<size_t>(row)].push_back(
          static_cast<uint8_t>(next[row].item<int64_t>()));
    }
    shown(i + 1);
  }
  std::vector<std::string> decoded;
  for (const auto& text : texts) {
    decoded.push_back(vocabulary.decode(text));
  }
  return decoded;
}

std::string printable(const std::string& text) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    size_t n = byte < 0x80 ? 1 : sequence_length(byte);
    const bool control =
        (byte < 32 && byte != '\n' && byte != '\t') || byte == 127;
    bool whole = !control && n > 0 && i + n <= text.size();
    for (size_t k = 1; whole && k < n; ++k) {
      whole = continues(static_cast<unsigned char>(text[i + k]));
    }
    if (whole) {
      shown.append(text, i, n);
      i += n;
    } else {
      shown += '?';
      ++i;
    }
  }
  return shown;
}

} // namespace char_gpt
