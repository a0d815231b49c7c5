// Compiling what is not a temper::Module.
#include "temper/compile.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"

namespace temper {

namespace detail {

namespace {

// How far behind the object that a closure points to its members may lie.
constexpr uintptr_t kObjectReach = 1 << 16;

// The slots of a script object are one array of values. They are watched as
// bytes: tensors in it are recognised, numbers compared, other objects found.
void describe_object(
    const c10::intrusive_ptr<c10::ivalue::Object>& object,
    const std::string& name,
    std::set<const void*>& seen,
    State& state) {
  if (!seen.insert(object.get()).second) {
    return;
  }
  state.known(object.get());
  const auto& slots = object->slots();
  if (!slots.empty()) {
    state.bytes(slots.data(), slots.size() * sizeof(slots[0]), name);
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].isObject()) {
      describe_object(
          slots[i].toObject(),
          name + '.' + object->type()->getAttributeName(i),
          seen,
          state);
    }
  }
}

/// A script module's forward, as a target of `call`.
struct ScriptForward {
  static constexpr bool kGeneric = false;

  c10::IValue operator()(std::vector<c10::IValue> inputs) {
    return module->forward(std::move(inputs));
  }
  std::optional<ScriptForward> keep() const {
    return *this;
  }

  std::shared_ptr<torch::jit::Module> module;
};

} // namespace

bool Closure::reaches(const void* address) const {
  if (size == 0) {
    return true;
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

void throw_function_gone() {
  base::throw_error(
      "cannot run a backward pass: the compiled function that it belongs to "
      "is gone, and with it what it captured. Keep what temper::compile() "
      "returned alive until the last backward.");
}

CompiledScript Compile<torch::jit::Module>::with(
    const torch::jit::Module& module,
    const CompileOptions& options,
    std::vector<Watched> watched) {
  auto shared = std::make_shared<torch::jit::Module>(module);
  const auto object = module._ivalue();
  std::string name = module.type()->name() ? module.type()->name()->name()
                                           : std::string("script module");
  auto site = std::make_shared<Site>(
      std::move(name),
      options,
      [object, watched = std::move(watched)](State& state) {
        std::set<const void*> seen;
        describe_object(object, "script", seen, state);
        for (const auto& watch : watched) {
          watch(Closure(), state);
        }
      });
  return CompiledScript(std::move(site), std::move(shared));
}

} // namespace detail

c10::IValue CompiledScript::operator()(std::vector<c10::IValue> inputs) const {
  detail::ScriptForward target{module_};
  if (!site_->enabled()) {
    return target(std::move(inputs));
  }
  return detail::call<detail::Params<std::vector<c10::IValue>>>(
      *site_, target, std::move(inputs));
}

} // namespace temper
