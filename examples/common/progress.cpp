// Drawing of the progress bar.
#include "common/progress.h"

#include <algorithm>
#include <cstdio>
#include <iomanip>
#include <sstream>
#include <utility>

#include <sys/ioctl.h>
#include <unistd.h>

namespace examples {

namespace {

constexpr std::chrono::milliseconds kRedraw(100);
constexpr std::chrono::seconds kLine(5);
constexpr int kBar = 10;

size_t columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 80;
  }
  return size.ws_col;
}

std::string minutes(double seconds) {
  const auto all = static_cast<int64_t>(std::max(seconds, 0.0) + 0.5);
  std::ostringstream out;
  out << all / 60 << ':' << std::setw(2) << std::setfill('0') << all % 60;
  return out.str();
}

} // namespace

Progress::Progress(std::string unit, int64_t done, int64_t total)
    : unit_(std::move(unit)),
      first_(done),
      total_(total),
      terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_() {}

Progress::~Progress() {
  if (!line_.empty()) {
    std::fputc('\n', stderr);
  }
}

void Progress::show(int64_t done, const std::string& note) {
  const auto now = Clock::now();
  const bool last = done == total_;
  if (!last && now - shown_ < (terminal_ ? kRedraw : kLine)) {
    return;
  }
  shown_ = now;
  if (terminal_) {
    line_ = text(done, note, kBar);
    draw();
  } else {
    std::fprintf(stderr, "%s\n", text(done, note, 0).c_str());
  }
}

void Progress::print(const std::string& line) {
  // \r and "erase to the end": the text takes the place of the bar, which is
  // drawn again below.
  std::fprintf(stderr, "%s%s\n", line_.empty() ? "" : "\r\033[K", line.c_str());
  if (!line_.empty()) {
    draw();
  }
}

std::string Progress::text(int64_t done, const std::string& note, int bar)
    const {
  std::ostringstream out;
  if (bar > 0) {
    const auto full =
        static_cast<int>(bar * done / std::max<int64_t>(total_, 1));
    out << '[' << std::string(static_cast<size_t>(full), '#')
        << std::string(static_cast<size_t>(bar - full), '.') << "] ";
  }
  const auto width = static_cast<int>(std::to_string(total_).size());
  out << unit_ << ' ' << std::setw(width) << done << '/' << total_;
  const double spent =
      std::chrono::duration<double>(Clock::now() - start_).count();
  if (done == total_) {
    out << "  took " << minutes(spent);
  } else if (done > first_) {
    out << "  "
        << minutes(
               spent * static_cast<double>(total_ - done) /
               static_cast<double>(done - first_))
        << " left";
  }
  out << "  " << note;
  return out.str();
}

void Progress::draw() {
  std::fprintf(stderr, "\r%s\033[K", line_.substr(0, columns() - 1).c_str());
  std::fflush(stderr);
}

} // namespace examples
