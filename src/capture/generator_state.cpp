// Reads and writes the default CPU generator.
#include "capture/generator_state.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

namespace temper::capture {
namespace {

at::CPUGeneratorImpl& default_generator() {
  return *at::check_generator<at::CPUGeneratorImpl>(
      at::detail::getDefaultCPUGenerator());
}

} // namespace

const char* const kGeneratorTouched =
    "random numbers were drawn or seeded outside of tensor ops";

GeneratorState GeneratorState::current() {
  auto& generator = default_generator();
  std::scoped_lock lock(generator.mutex_);
  return {
      generator.engine().data(),
      generator.next_float_normal_sample(),
      generator.next_double_normal_sample()};
}

bool GeneratorState::operator==(const GeneratorState& other) const {
  // Not the array's unused words alone decide: seed, position and what is
  // left say where in the stream we are, the array which stream.
  return engine.seed_ == other.engine.seed_ &&
      engine.left_ == other.engine.left_ &&
      engine.next_ == other.engine.next_ &&
      engine.state_ == other.engine.state_ && next_float == other.next_float &&
      next_double == other.next_double;
}

void GeneratorState::restore() const {
  auto& generator = default_generator();
  std::scoped_lock lock(generator.mutex_);
  at::mt19937 restored;
  restored.set_data(engine);
  generator.set_engine(restored);
  generator.set_next_float_normal_sample(next_float);
  generator.set_next_double_normal_sample(next_double);
}

} // namespace temper::capture
