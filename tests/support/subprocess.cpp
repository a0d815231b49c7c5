// Running a body as the whole life of a process.
#include "support/subprocess.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include "support/mutants.h"

namespace temper::testing {

void set_time_limit(unsigned seconds) {
  ::alarm(seconds);
}

void run_and_leave(const std::function<void()>& body, bool exit) {
  set_time_limit(60);
  int status = 0;
  try {
    body();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "threw: %s\n", e.what());
    status = 1;
  }
  if (::testing::Test::HasFailure()) {
    status = 1;
  }
  report_mutant_of_a_child(status != 0);
  std::fflush(nullptr);
  if (exit) {
    std::exit(status);
  }
  ::_exit(status);
}

} // namespace temper::testing
