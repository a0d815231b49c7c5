// Reading TEMPER_* environment variables.
#include "base/env.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace temper::base {

namespace {

constexpr std::array<std::string_view, 4> kYes = {"1", "true", "on", "yes"};
constexpr std::array<std::string_view, 4> kNo = {"0", "false", "off", "no"};

enum class Switch : uint8_t { kUnread, kOff, kOn };
std::atomic<Switch> disable{Switch::kUnread};

void warn_unreadable(
    const char* name,
    const std::string& found,
    const std::string& expected) {
  const std::string subject = std::string(name) + "=" + found;
  warn_once(subject, subject + ": expected " + expected + "; ignored");
}

} // namespace

std::optional<std::string> env_string(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return value;
}

bool env_flag(const char* name, bool fallback) {
  const auto value = env_string(name);
  if (!value) {
    return fallback;
  }
  std::string lower = *value;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (std::find(kYes.begin(), kYes.end(), lower) != kYes.end()) {
    return true;
  }
  if (std::find(kNo.begin(), kNo.end(), lower) != kNo.end()) {
    return false;
  }
  warn_unreadable(name, *value, "1 or 0");
  return fallback;
}

int64_t env_int(const char* name, int64_t fallback, int64_t min, int64_t max) {
  const auto value = env_string(name);
  if (!value) {
    return fallback;
  }
  int64_t number = 0;
  const char* const end = value->data() + value->size();
  const auto [at, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || at != end || number < min || number > max) {
    warn_unreadable(
        name,
        *value,
        "an integer from " + std::to_string(min) + " to " +
            std::to_string(max));
    return fallback;
  }
  return number;
}

bool disabled() {
  Switch state = disable.load(std::memory_order_relaxed);
  if (state == Switch::kUnread) {
    state = env_flag("TEMPER_DISABLE", false) ? Switch::kOn : Switch::kOff;
    disable.store(state, std::memory_order_relaxed);
  }
  return state == Switch::kOn;
}

void reread_environment() {
  disable.store(Switch::kUnread, std::memory_order_relaxed);
  detail::topics.store(detail::kTopicsUnread, std::memory_order_relaxed);
}

} // namespace temper::base
