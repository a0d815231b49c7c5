// Runs a whole test program with backwards that are cut into many segments:
// the real limit is 1 MiB of gradients, which few tests reach. With
// TEMPER_TEST_BUCKET_BYTES=<n> in the environment n bytes end a segment.
#pragma once

namespace temper::testing {

/// Sets the limit, if there is one in the environment. True iff there is; ends
/// the program if it is not a number.
bool install_bucket_bytes();

/// True where TEMPER_TEST_BUCKET_BYTES is set.
bool has_short_segments();

} // namespace temper::testing
