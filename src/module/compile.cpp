// Compiling what is not a temper::Module.
#include "temper/compile.h"

#include <pthread.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace temper {

namespace detail {

namespace {

// How far behind the object that a closure points to its members may lie.
constexpr uintptr_t kObjectReach = 1 << 16;

// Deeper than any model; stops at cycles.
constexpr int kMaxObjectDepth = 64;

void flatten_object(const c10::ivalue::Object& object, int depth, Sink& sink) {
  if (depth == kMaxObjectDepth) {
    sink.reject("a script module that holds itself");
    return;
  }
  for (const c10::IValue& slot : object.slots()) {
    if (slot.isObject()) {
      flatten_object(slot.toObjectRef(), depth + 1, sink);
    } else {
      flatten(slot, sink);
    }
  }
}

/// A script module's forward, as a target of `call`.
struct ScriptForward {
  static constexpr bool kGeneric = false;

  c10::IValue operator()(std::vector<c10::IValue> inputs) {
    return module->forward(std::move(inputs));
  }
  ScriptForward keep(const Site& own_site) const {
    return {module, own_site.weak_from_this().lock()};
  }

  std::shared_ptr<torch::jit::Module> module;
  std::shared_ptr<const Site> site;
};

} // namespace

bool is_on_stack(const void* address) {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return false;
  }
  void* begin = nullptr;
  size_t size = 0;
  const bool known = pthread_attr_getstack(&attributes, &begin, &size) == 0;
  pthread_attr_destroy(&attributes);
  const auto* const first = static_cast<const char*>(begin);
  return known &&
      std::less_equal<>()(first, static_cast<const char*>(address)) &&
      std::less<>()(static_cast<const char*>(address), first + size);
}

void Codec<torch::jit::Module>::flatten(
    const torch::jit::Module& value,
    Sink& sink) {
  flatten_object(*value._ivalue(), 0, sink);
}

bool Closure::reaches(const void* address, bool is_local) const {
  if (size == 0) {
    return !is_local;
  }
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  for (size_t at = 0; at + sizeof(uintptr_t) <= size; at += alignof(void*)) {
    uintptr_t pointer = 0;
    std::memcpy(
        &pointer, static_cast<const char*>(begin) + at, sizeof(pointer));
    if (pointer <= wanted && wanted - pointer < kObjectReach) {
      return true;
    }
  }
  return false;
}

CompiledScript Compile<torch::jit::Module>::with(
    const torch::jit::Module& module,
    const CompileOptions& options,
    std::vector<Watched> watched) {
  auto shared = std::make_shared<torch::jit::Module>(module);
  std::string name = module.type()->name() ? module.type()->name()->name()
                                           : std::string("script module");
  auto site = std::make_shared<Site>(
      std::move(name),
      options,
      [script = shared, watched = std::move(watched)](State& state) {
        describe_field(*script, "script", state);
        for (const auto& watch : watched) {
          watch(Closure(), state);
        }
      });
  return CompiledScript(std::move(site), std::move(shared));
}

} // namespace detail

c10::IValue CompiledScript::operator()(std::vector<c10::IValue> inputs) const {
  detail::ScriptForward target{module_, nullptr};
  if (!site_->enabled()) {
    return target(std::move(inputs));
  }
  return detail::call<detail::Params<std::vector<c10::IValue>>>(
      *site_, target, std::move(inputs));
}

} // namespace temper
