// The state that a site's code can see, told to a Watch; and the module types
// that the public headers have met.
#include "module/watched_state.h"

#include <atomic>
#include <utility>
#include <vector>

#include "dispatch/known_modules.h"
#include "temper/detail/sink.h"

namespace temper {

namespace module {

namespace {

dispatch::ReadField reader(const void* begin, detail::FlattenAt flatten) {
  return [begin, flatten](dispatch::FieldContent& content) {
    detail::Sink sink(content.tensors, content.bytes, &content.modules);
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

} // namespace

void WatchedState::module(torch::nn::Module& root) {
  watch_.add_module(root);
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
  const auto fields = known.fields;
  dispatch::record_module_type(
      type,
      {known.size, known.padding, [fields](const torch::nn::Module& module) {
         module::FieldList list;
         fields(module, list);
         return std::move(list.fields);
       }});
}

} // namespace detail

} // namespace temper
