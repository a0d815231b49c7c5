// The visibility macro of the public symbols of libtemper.so.
#pragma once

#define TEMPER_API __attribute__((visibility("default")))
