// Errors of an example, printed in one style.
#include "common/run_main.h"

#include <exception>
#include <iostream>
#include <new>

#include <c10/util/Exception.h>

namespace examples {

int run_main(const std::string& program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const UsageError& e) {
    std::cerr << program << ": " << e.what() << '\n';
    return 2;
  } catch (const c10::Error& e) {
    std::cerr << program << ": " << e.what_without_backtrace() << '\n';
  } catch (const std::bad_alloc&) {
    std::cerr << program << ": out of memory\n";
  } catch (const std::exception& e) {
    std::cerr << program << ": " << e.what() << '\n';
  }
  return 1;
}

} // namespace examples
