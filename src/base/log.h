// Log lines by topic, and warnings.
//
// TEMPER_LOG=trace,guard (or `all`) switches topics on. A line goes to stderr,
// in one piece whatever other threads print, and begins with "temper: ".
#pragma once

#include <c10/util/StringUtil.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper::base {

/// What a line is about. TEMPER_LOG names them as `topic_name` does.
enum class Topic : uint8_t {
  kTrace, ///< Calls that were traced: operators, time.
  kShadow, ///< Shadow runs: matches and divergences.
  kGuard, ///< Calls with a new signature: the first difference from the last.
  kGraph, ///< The text of every new graph after every pass.
  kProgram, ///< The text of every new program.
  kEager, ///< Signatures and calls that run eagerly, and why.
  kStore, ///< The artifact store: what was found, compiled or failed.
};
constexpr int kNumTopics = 7;

/// "trace", "shadow", …
std::string_view topic_name(Topic topic);

namespace detail {
/// Set until TEMPER_LOG has been read.
constexpr uint32_t kTopicsUnread = 1U << 31;
extern std::atomic<uint32_t> topics;
uint32_t read_topics();
} // namespace detail

/// True iff lines of this topic are wanted. One relaxed load.
inline bool log_on(Topic topic) {
  uint32_t topics = detail::topics.load(std::memory_order_relaxed);
  if (topics & detail::kTopicsUnread) {
    topics = detail::read_topics();
  }
  return topics >> static_cast<unsigned>(topic) & 1U;
}

/// Prints a line; "temper: " and the line's end are added. Use TEMPER_LOG,
/// which asks `log_on` first.
void log_line(std::string_view message);

/// Prints a warning line, whatever the topics.
void warn(std::string_view message);

/// `warn`, but only the first time that this key is given.
void warn_once(std::string_view key, std::string_view message);

/// Switches topics as if TEMPER_LOG had this value.
void set_log_topics(std::string_view comma_separated);

/// For tests: while it lives, lines are kept here and not printed. Nested
/// captures: the innermost gets the lines. Also forgets which `warn_once` keys
/// were given, now and at its end.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  /// The lines so far, each with its "temper: ", without its end.
  std::vector<std::string> lines() const;
  /// True iff a line contains `text`.
  bool saw(std::string_view text) const;

 private:
  friend void emit(std::string_view line);

  LogCapture* outer_ = nullptr;
  std::vector<std::string> lines_;
};

} // namespace temper::base

/// TEMPER_LOG(kGuard, "'", name, "' traced again"): formats and prints iff the
/// topic is on.
#define TEMPER_LOG(topic, ...)                                  \
  do {                                                          \
    if (::temper::base::log_on(::temper::base::Topic::topic)) { \
      ::temper::base::log_line(::c10::str(__VA_ARGS__));        \
    }                                                           \
  } while (false)
