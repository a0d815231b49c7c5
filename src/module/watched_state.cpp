// The state that a site's code can see, told to a Watch; and the module types
// that the public headers have met.
#include "module/watched_state.h"

#include <atomic>
#include <mutex>
#include <typeindex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dispatch/known_modules.h"
#include "temper/detail/sink.h"

namespace temper {

namespace module {

namespace {

struct KnownTypes {
  std::mutex mutex;
  std::unordered_map<std::type_index, detail::ModuleType> types;
};

// Never destroyed: modules may outlive static destruction.
KnownTypes& known_types() {
  static KnownTypes& known = *new KnownTypes;
  return known;
}

detail::ModuleType known_type(const torch::nn::Module& module) {
  KnownTypes& known = known_types();
  const std::lock_guard lock(known.mutex);
  const auto it = known.types.find(typeid(module));
  return it == known.types.end() ? detail::ModuleType() : it->second;
}

dispatch::ReadField reader(const void* begin, detail::FlattenAt flatten) {
  return [begin, flatten](dispatch::FieldContent& content) {
    detail::Sink sink(content.tensors, content.bytes);
    flatten(begin, sink);
    if (!sink.rejected().empty()) {
      // Holds something that has no value to compare: never the same twice.
      static std::atomic<uint64_t> number{0};
      sink.bits(++number);
    }
  };
}

// The declared fields of one module.
class FieldList final : public detail::State {
 public:
  std::vector<dispatch::Field> fields;

  void module(torch::nn::Module&) override {}
  void bytes(const void*, size_t, std::string) override {}
  void content(
      const void* begin,
      size_t size,
      std::string name,
      detail::FlattenAt flatten) override {
    fields.push_back({std::move(name), begin, size, reader(begin, flatten)});
  }
  void ignore(const void* begin, size_t size) override {
    fields.push_back({"", begin, size, nullptr});
  }
  void known(const void*) override {}
};

// As `dispatch::DeclaredFields`, of every type that was met here.
std::vector<dispatch::Field> declared_fields(const torch::nn::Module& module) {
  FieldList list;
  const detail::ModuleType known = known_type(module);
  if (known.fields != nullptr) {
    known.fields(module, list);
  }
  return std::move(list.fields);
}

} // namespace

void WatchedState::module(torch::nn::Module& root) {
  for (const auto& module : root.modules(/*include_self=*/false)) {
    detail::meet_module(*module);
  }
  detail::meet_module(root);
  watch_.add_module(root, dispatch::module_type(root).size);
}

void WatchedState::bytes(const void* begin, size_t size, std::string name) {
  watch_.add_range(begin, size, std::move(name));
}

void WatchedState::content(
    const void* begin,
    size_t size,
    std::string name,
    detail::FlattenAt flatten) {
  watch_.add_field({std::move(name), begin, size, reader(begin, flatten)});
}

void WatchedState::ignore(const void* begin, size_t size) {
  watch_.add_field({"", begin, size, nullptr});
}

void WatchedState::known(const void* address) {
  watch_.add_known_address(address);
}

} // namespace module

namespace detail {

State::~State() = default;

void know_module_type(const std::type_info& type, const ModuleType& known) {
  module::KnownTypes& types = module::known_types();
  const std::lock_guard lock(types.mutex);
  types.types.emplace(type, known);
}

void meet_module(const torch::nn::Module& module) {
  const ModuleType known = module::known_type(module);
  if (known.size != 0) {
    dispatch::record_module_type(
        module, typeid(module), known.size, &module::declared_fields);
  }
}

} // namespace detail

} // namespace temper
