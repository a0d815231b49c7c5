// 128-bit hashes of content: the identity of skeletons, kernels and files.
#include "base/hash.h"

#include <bit>

// Compiled into this file: one function is used, and no run-time dependency is
// worth it.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"

namespace temper::base {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

Hash128 from_xxh(XXH128_hash_t hash) {
  return {hash.high64, hash.low64};
}

void append_hex(std::string& text, uint64_t word) {
  for (int shift = 60; shift >= 0; shift -= 4) {
    text += kDigits[(word >> shift) & 15];
  }
}

std::optional<uint64_t> word_from_hex(std::string_view text) {
  uint64_t word = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) {
      return std::nullopt;
    }
    word = word << 4 | digit;
  }
  return word;
}

} // namespace

std::string Hash128::hex() const {
  std::string text;
  text.reserve(32);
  append_hex(text, high);
  append_hex(text, low);
  return text;
}

std::optional<Hash128> Hash128::from_hex(std::string_view text) {
  if (text.size() != 32) {
    return std::nullopt;
  }
  const auto high = word_from_hex(text.substr(0, 16));
  const auto low = word_from_hex(text.substr(16));
  if (!high || !low) {
    return std::nullopt;
  }
  return Hash128{*high, *low};
}

Hash128 hash128(std::string_view bytes) {
  return from_xxh(XXH3_128bits(bytes.data(), bytes.size()));
}

struct Hasher::State {
  XXH3_state_t xxh; // Aligned to 64 by its own declaration.
};

Hasher::Hasher() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->xxh);
  TEMPER_INTERNAL(XXH3_128bits_reset(&state_->xxh) == XXH_OK);
}

Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

Hasher& Hasher::add_bytes(const void* data, size_t size) {
  TEMPER_INTERNAL(XXH3_128bits_update(&state_->xxh, data, size) == XXH_OK);
  return *this;
}

Hasher& Hasher::add_word(uint64_t word) {
  return add_bytes(&word, sizeof word);
}

Hasher& Hasher::add(std::string_view text) {
  return add_word(text.size()).add_bytes(text.data(), text.size());
}

Hasher& Hasher::add(const Hash128& hash) {
  return add_word(hash.high).add_word(hash.low);
}

Hasher& Hasher::add(double number) {
  return add_word(std::bit_cast<uint64_t>(number));
}

Hash128 Hasher::digest() const {
  return from_xxh(XXH3_128bits_digest(&state_->xxh));
}

} // namespace temper::base
