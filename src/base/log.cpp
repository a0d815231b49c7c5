// Log lines by topic, and warnings.
#include "base/log.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <mutex>
#include <set>

#include "base/env.h"

namespace temper::base {

namespace {

constexpr std::array<std::string_view, kNumTopics> kNames =
    {"trace", "shadow", "guard", "graph", "program", "eager", "store"};
constexpr uint32_t kAllTopics = (1U << kNumTopics) - 1;

// Never destroyed: threads may log during exit.
struct Sink {
  std::mutex mutex;
  LogCapture* capture = nullptr; ///< The innermost, if any.
  std::set<std::string, std::less<>> warned;
};

Sink& sink() {
  static Sink& sink = *new Sink;
  return sink;
}

std::string known_topics() {
  std::string text;
  for (const auto name : kNames) {
    text += name;
    text += ", ";
  }
  return text + "all";
}

uint32_t topics_of(std::string_view list) {
  uint32_t topics = 0;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const auto name = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const auto* const known = std::find(kNames.begin(), kNames.end(), name);
    if (name == "all") {
      topics |= kAllTopics;
    } else if (known != kNames.end()) {
      topics |= 1U << static_cast<unsigned>(known - kNames.begin());
    } else if (!name.empty()) {
      const std::string key = "TEMPER_LOG=" + std::string(name);
      warn_once(
          key, key + ": no such topic, ignored; known: " + known_topics());
    }
  }
  return topics;
}

} // namespace

std::atomic<uint32_t> detail::topics{detail::kTopicsUnread};

uint32_t detail::read_topics() {
  const uint32_t found = topics_of(env_string("TEMPER_LOG").value_or(""));
  topics.store(found, std::memory_order_relaxed);
  return found;
}

std::string_view topic_name(Topic topic) {
  return kNames.at(static_cast<size_t>(topic));
}

// Prints or keeps one line; the sink's mutex is held.
void emit(std::string_view line) {
  std::string text = "temper: ";
  text += line;
  if (LogCapture* const capture = sink().capture) {
    capture->lines_.push_back(std::move(text));
    return;
  }
  text += '\n';
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void log_line(std::string_view message) {
  const std::lock_guard lock(sink().mutex);
  emit(message);
}

void warn(std::string_view message) {
  log_line("warning: " + std::string(message));
}

void warn_once(std::string_view key, std::string_view message) {
  const std::lock_guard lock(sink().mutex);
  if (sink().warned.emplace(key).second) {
    emit("warning: " + std::string(message));
  }
}

void set_log_topics(std::string_view comma_separated) {
  detail::topics.store(topics_of(comma_separated), std::memory_order_relaxed);
}

LogCapture::LogCapture() {
  const std::lock_guard lock(sink().mutex);
  outer_ = sink().capture;
  sink().capture = this;
  sink().warned.clear();
}

LogCapture::~LogCapture() {
  const std::lock_guard lock(sink().mutex);
  sink().capture = outer_;
  sink().warned.clear();
}

std::vector<std::string> LogCapture::lines() const {
  const std::lock_guard lock(sink().mutex);
  return lines_;
}

bool LogCapture::saw(std::string_view text) const {
  const std::lock_guard lock(sink().mutex);
  return std::any_of(lines_.begin(), lines_.end(), [&](const auto& line) {
    return line.find(text) != std::string::npos;
  });
}

} // namespace temper::base
