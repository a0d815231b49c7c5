// Hash128 and Hasher.
#include "base/hash.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <unordered_set>

namespace temper::base {
namespace {

TEST(Hash, IsTheSameInEveryProcess) {
  // Names on disk depend on it; the values are XXH3's own.
  EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash128("temper").hex().size(), 32U);
  EXPECT_EQ(hash128("temper"), hash128("temper"));
  EXPECT_NE(hash128("temper"), hash128("Temper"));
}

TEST(Hash, HexReadsBack) {
  const Hash128 hash{0x0123456789abcdefULL, 0xfULL};
  EXPECT_EQ(hash.hex(), "0123456789abcdef000000000000000f");
  EXPECT_EQ(Hash128::from_hex(hash.hex()), hash);
}

TEST(Hash, HexOfAnotherShapeIsRefused) {
  const std::string good = hash128("x").hex();
  EXPECT_FALSE(Hash128::from_hex(""));
  EXPECT_FALSE(Hash128::from_hex(good.substr(1)));
  EXPECT_FALSE(Hash128::from_hex(good + "0"));
  EXPECT_FALSE(Hash128::from_hex("g" + good.substr(1)));
  EXPECT_FALSE(Hash128::from_hex("A" + good.substr(1)));
}

TEST(Hasher, KeepsThePartsOfASequenceApart) {
  const auto of = [](std::string_view a, std::string_view b) {
    return Hasher().add(a).add(b).digest();
  };
  EXPECT_NE(of("ab", "c"), of("a", "bc"));
  EXPECT_NE(of("", "a"), of("a", ""));
  EXPECT_EQ(of("a", "b"), of("a", "b"));
}

TEST(Hasher, HashesDoublesByTheirBits) {
  const auto of = [](double x) { return Hasher().add(x).digest(); };
  EXPECT_NE(of(0.0), of(-0.0));
  EXPECT_EQ(of(std::nan("")), of(std::nan("")));
  EXPECT_NE(of(1.0), Hasher().add(1).digest());
}

TEST(Hasher, TakesEveryIntegerAsAWord) {
  EXPECT_EQ(Hasher().add(7).digest(), Hasher().add(int64_t{7}).digest());
  EXPECT_EQ(Hasher().add(true).digest(), Hasher().add(uint8_t{1}).digest());
  EXPECT_NE(Hasher().add(7).digest(), Hasher().add(7).add(0).digest());
}

TEST(Hasher, RawBytesHashAsThoseBytesAlone) {
  EXPECT_EQ(Hasher().add_bytes("temper", 6).digest(), hash128("temper"));
  EXPECT_NE(Hasher().add("temper").digest(), hash128("temper"));
}

TEST(Hasher, GoesOnAfterADigest) {
  Hasher hasher;
  hasher.add("a");
  const Hash128 first = hasher.digest();
  EXPECT_EQ(hasher.digest(), first);
  EXPECT_EQ(hasher.add("b").digest(), Hasher().add("a").add("b").digest());
}

TEST(Hash, WorksAsAKey) {
  std::unordered_set<Hash128, Hash128::Bucket> some{hash128("a"), hash128("b")};
  EXPECT_EQ(some.count(hash128("a")), 1U);
  EXPECT_EQ(some.count(hash128("c")), 0U);
  EXPECT_EQ(std::set<Hash128>({hash128("a"), hash128("a")}).size(), 1U);
}

} // namespace
} // namespace temper::base
