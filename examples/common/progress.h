// A progress bar on standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace examples {

/// On a terminal one line, drawn again and again; elsewhere (a file, a log) a
/// whole line every few seconds and one at the end.
class Progress {
 public:
  /// From `done` to `total`. `unit` names what is counted.
  Progress(std::string unit, int64_t done, int64_t total);
  /// Ends the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows that `done` is reached, with `note` behind the bar.
  void show(int64_t done, const std::string& note);
  /// Prints a line of text above the bar.
  void print(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  std::string text(int64_t done, const std::string& note, int bar) const;
  void draw();

  std::string unit_;
  int64_t first_; ///< Where this run began: what was done before took no time.
  int64_t total_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point shown_; ///< When something was last printed.
  std::string line_; ///< On a terminal: what stands there now.
};

} // namespace examples
