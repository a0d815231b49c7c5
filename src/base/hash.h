// 128-bit hashes of content: the identity of skeletons, kernels and files.
//
// They are the same in every process and on every machine, so they may go to
// disk; `std::hash` and addresses may not, and are never used for identity.
#pragma once

#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace temper::base {

/// XXH3_128bits of some content.
struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;

  auto operator<=>(const Hash128&) const = default;

  /// 32 lower-case digits, most significant first.
  std::string hex() const;
  /// The inverse of `hex`; nothing if `text` is not such a number.
  static std::optional<Hash128> from_hex(std::string_view text);

  /// Picks the bucket in an unordered container.
  struct Bucket {
    size_t operator()(const Hash128& hash) const noexcept {
      return static_cast<size_t>(hash.low);
    }
  };
};

/// The hash of these bytes, nothing added.
Hash128 hash128(std::string_view bytes);

/// Hashes a sequence of things. Strings are preceded by their length, so that
/// ("ab", "c") and ("a", "bc") differ; every number counts as 8 bytes.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  Hasher& add(std::string_view text);
  Hasher& add(const char* text) {
    return add(std::string_view(text));
  }
  Hasher& add(const Hash128& hash);
  /// By bits: -0.0 is not 0.0, and a NaN equals itself.
  Hasher& add(double number);
  template <std::integral T>
  Hasher& add(T number) {
    return add_word(static_cast<uint64_t>(number));
  }
  /// Raw bytes, without their number.
  Hasher& add_bytes(const void* data, size_t size);

  /// The hash of what was added so far; more may be added afterwards.
  Hash128 digest() const;

 private:
  struct State;

  Hasher& add_word(uint64_t word);

  std::unique_ptr<State> state_;
};

} // namespace temper::base
