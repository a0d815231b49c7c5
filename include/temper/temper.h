// temper: torch.compile for C++. Includes all public headers.
#pragma once

#include <temper/compile.h>
#include <temper/counters.h>
#include <temper/device.h>
#include <temper/error.h>
#include <temper/explain.h>
#include <temper/export.h>
#include <temper/fields.h>
#include <temper/module.h>
#include <temper/options.h>
#include <temper/version.h>
