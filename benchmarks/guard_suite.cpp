// What guards cost: a module with many parameters that returns its argument.
#include <cstdint>

#include <c10/util/StringUtil.h>

#include "subject.h"
#include "suites.h"

namespace bench {

namespace {

constexpr int64_t kChildren = 30;
constexpr int64_t kParameters = 100;
constexpr size_t kStreamedBytes = size_t{64} << 20;
constexpr int64_t kColdRounds = 40;

struct LeafImpl : temper::Module<LeafImpl> {
  explicit LeafImpl(int64_t count_) : count(count_) {
    reset();
  }
  void reset() override {
    for (int64_t i = 0; i < count; ++i) {
      register_parameter(c10::str("p", i), torch::zeros({8}));
    }
  }

  int64_t count;
};
TEMPER_MODULE(Leaf);

struct IdentityImpl : temper::Module<IdentityImpl> {
  IdentityImpl() {
    reset();
  }
  void reset() override {
    int64_t left = kParameters;
    for (int64_t i = 0; i < kChildren; ++i) {
      const int64_t here = left / (kChildren - i);
      register_module(c10::str("leaf", i), Leaf(here));
      left -= here;
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x;
  }
};
TEMPER_MODULE(Identity);

/// Drives everything else out of the caches.
class Stream {
 public:
  void operator()() {
    for (uint64_t& word : words_) {
      word += 1;
    }
  }

 private:
  std::vector<uint64_t> words_ =
      std::vector<uint64_t>(kStreamedBytes / sizeof(uint64_t));
};

void run(const Context& context) {
  if (!context.wanted("identity")) {
    return;
  }
  const Subject subject =
      make_subject("identity", Identity(), torch::zeros({4, 4}));
  Stream stream;
  for (const Mode mode : {Mode::kInfer, Mode::kTrain}) {
    const ModeScope scope(subject, mode);
    const CompiledNet compiled = subject.compile();
    const auto call = [&] { compiled.call(subject.input); };
    const auto eager = [&] { subject.eager(subject.input); };
    temper::reset_counters();
    const auto hot = interleave(context.timing, {{call}, {eager}});
    const auto cold = interleave(
        {.rounds = kColdRounds},
        {{call, std::ref(stream)}, {eager, std::ref(stream)}});
    Row row = make_row("guard", subject.name, mode, hot);
    require_programs(row);
    row.extra = {
        {"us_cold", median(cold[0])}, {"us_cold_peer", median(cold[1])}};
    row.note = "cold " + microseconds(median(cold[0])) + ", eager " +
        microseconds(median(cold[1]));
    context.emit(row);
  }
}

} // namespace

Suite guard_suite() {
  return {"guard", {"identity"}, run, /*one_thread=*/true};
}

} // namespace bench
