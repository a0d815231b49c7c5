// The registry of backends.
#include "codegen/backend.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "codegen/compile_aten.h"

namespace temper::codegen {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, Backend, std::less<>> backends{{"aten", compile_aten}};
};

Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

} // namespace

void register_backend(const std::string& name, Backend backend) {
  TEMPER_CHECK(
      name != "aten" && name != "eager",
      "backend '",
      name,
      "' is built in and can't be replaced; register yours under another name");
  TEMPER_CHECK(backend, "backend '", name, "' is an empty function");
  const std::lock_guard lock(registry().mutex);
  registry().backends.insert_or_assign(name, std::move(backend));
}

Backend find_backend(std::string_view name) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().backends.find(name);
  return found == registry().backends.end() ? Backend() : found->second;
}

std::vector<std::string> backend_names() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::string> names;
  for (const auto& [name, backend] : registry().backends) {
    names.push_back(name);
  }
  return names;
}

} // namespace temper::codegen
