// The visibility macro of the public symbols of libtemper.so.
#pragma once

/// Of what libtemper.so exports.
#define TEMPER_API __attribute__((visibility("default")))
