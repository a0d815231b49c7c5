// Packing the global state into words, by one table of fields.
#include "dispatch/global_state.h"

#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <atomic>
#include <utility>
#include <vector>

namespace temper::dispatch {

namespace {

// Context's accessors are calls into a library, and the one for precisions
// looks into hash tables: 150 ns in all. Its members are read in place
// instead. (C++ ignores access in explicit instantiations; the build pins the
// version of LibTorch.)
template <typename Tag, auto member>
struct Expose {
  friend auto get(Tag) {
    return member;
  }
};
#define TEMPER_EXPOSE(name)      \
  struct Tag_##name {            \
    friend auto get(Tag_##name); \
  };                             \
  template struct Expose<Tag_##name, &at::Context::name>

// Members of Context that are a bool or a small enum: bits, name for people.
// clang-format off
#define TEMPER_CONTEXT_FLAGS(_) \
  _(_deterministic_algorithms, 1, "deterministic algorithms") \
  _(_deterministic_algorithms_warn_only, 1, "warn-only determinism") \
  _(_deterministic_fill_uninitialized_memory, 1, "filling of new memory") \
  _(deterministic_cudnn, 1, "deterministic cuDNN") \
  _(deterministic_mkldnn, 1, "deterministic oneDNN") \
  _(benchmark_cudnn, 1, "cuDNN benchmarking") \
  _(enabled_cudnn, 1, "cuDNN") \
  _(enabled_mkldnn, 1, "oneDNN") \
  _(enabled_nnpack, 1, "NNPACK") \
  _(enabled_flashSDP, 1, "flash attention") \
  _(enabled_fa3SDP, 1, "flash attention 3") \
  _(enabled_fa4SDP, 1, "flash attention 4") \
  _(enabled_mem_efficientSDP, 1, "memory-efficient attention") \
  _(enabled_mathSDP, 1, "math attention") \
  _(enabled_cudnnSDP, 1, "cuDNN attention") \
  _(enabled_overrideable, 1, "overrideable attention") \
  _(allow_fp16_bf16_reduction_mathSDP, 1, "math attention in half") \
  _(float32_matmul_precision, 2, "float32 matmul precision") \
  _(allow_tf32_cudnn, 1, "TF32 in cuDNN") \
  _(allow_tf32_onednn, 1, "TF32 in oneDNN") \
  _(allow_fp16_reduction_cublas, 2, "fp16 reduction in cuBLAS") \
  _(allow_bf16_reduction_cublas, 2, "bf16 reduction in cuBLAS") \
  _(allow_fp16_accumulation_cublas, 1, "fp16 sums in cuBLAS") \
  _(allow_fp16_reduction_cpu, 1, "fp16 reduction on the CPU") \
  _(allow_native_aot, 1, "native AOT kernels") \
  _(mask_unconditional_native_aot, 1, "masked native AOT kernels") \
  _(linalg_preferred_backend, 2, "linear algebra backend") \
  _(blas_preferred_backend, 2, "BLAS backend") \
  _(quantized_engine, 3, "quantized engine")
// clang-format on

#define TEMPER_EXPOSE_FLAG(member, bits, name) TEMPER_EXPOSE(member);
TEMPER_CONTEXT_FLAGS(TEMPER_EXPOSE_FLAG)
#undef TEMPER_EXPOSE_FLAG
TEMPER_EXPOSE(fp32_precision);
TEMPER_EXPOSE(sdp_priority_order);

enum Word : size_t {
  kIncluded,
  kExcluded,
  kFlags,
  kPrecision,
  kAutocast,
  kGenerator,
};

// Fields of kFlags in order, from the lowest bit.
struct FlagField {
  unsigned bits;
  const char* name;
};
constexpr unsigned kDtypeBits = 6;
constexpr FlagField kFlagFields[] = {
    {1, "grad mode"},
    {1, "inference mode"},
    {1, "forward grad mode"},
    {1, "view replay"},
    {1, "gradient layout enforcement"},
    {1, "anomaly mode"},
    {1, "anomaly mode's check for NaN"},
    {1, "saved-tensor hooks"},
    {1, "disabling of saved-tensor hooks"},
    {1, "forward-mode AD"},
    {kDtypeBits, "default dtype"},
#define TEMPER_FLAG_FIELD(member, bits, name) {bits, name},
    TEMPER_CONTEXT_FLAGS(TEMPER_FLAG_FIELD)
#undef TEMPER_FLAG_FIELD
};

constexpr unsigned num_flag_bits() {
  unsigned sum = 0;
  for (const FlagField& field : kFlagFields) {
    sum += field.bits;
  }
  return sum;
}
static_assert(num_flag_bits() <= 64);
static_assert(static_cast<unsigned>(at::NumScalarTypes) < 1u << kDtypeBits);

// Appends fields to a word.
class Packer {
 public:
  template <typename T>
  void add(const std::atomic<T>& value, unsigned bits) {
    add(value.load(std::memory_order_relaxed), bits);
  }
  template <typename T>
  void add(const T& value, unsigned bits) {
    const auto field =
        static_cast<uint64_t>(value) & ((uint64_t{1} << bits) - 1);
    word_ |= field << used_;
    used_ += bits;
  }
  uint64_t word() const {
    return word_;
  }

 private:
  uint64_t word_ = 0;
  unsigned used_ = 0;
};

uint64_t flags(const at::Context& context) {
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  const auto& hooks = at::SavedTensorDefaultHooks::get_tls_state();
  Packer packer;
  packer.add(autograd.get_grad_mode(), 1);
  packer.add(autograd.get_inference_mode(), 1);
  packer.add(autograd.get_fw_grad_mode(), 1);
  packer.add(autograd.get_view_replay_enabled(), 1);
  packer.add(autograd.get_grad_layout_enforcement_enabled(), 1);
  packer.add(torch::autograd::AnomalyMode::is_enabled(), 1);
  packer.add(torch::autograd::AnomalyMode::should_check_nan(), 1);
  packer.add(!hooks.stack.empty(), 1);
  packer.add(hooks.disabled_error_message.has_value(), 1);
  packer.add(torch::autograd::ForwardADLevel::has_any_level(), 1);
  packer.add(c10::get_default_dtype_as_scalartype(), kDtypeBits);
#define TEMPER_PACK(member, bits, name) \
  packer.add(context.*get(Tag_##member()), bits);
  TEMPER_CONTEXT_FLAGS(TEMPER_PACK)
#undef TEMPER_PACK
  return packer.word();
}

using Precisions = std::vector<const at::Float32Precision*>;

// The entries of the map stay where they are: none is ever erased.
Precisions precision_entries(const at::Context& context) {
  const auto& map = context.*get(Tag_fp32_precision());
  Precisions entries;
  for (const auto backend :
       {at::Float32Backend::GENERIC,
        at::Float32Backend::CUDA,
        at::Float32Backend::MKLDNN}) {
    for (const auto op :
         {at::Float32Op::ALL,
          at::Float32Op::CONV,
          at::Float32Op::RNN,
          at::Float32Op::MATMUL}) {
      if (const auto it = map.find({backend, op}); it != map.end()) {
        entries.push_back(&it->second);
      }
    }
  }
  return entries;
}

uint64_t precision(const at::Context& context) {
  // Never destroyed: calls may come after main().
  static const Precisions& entries =
      *new Precisions(precision_entries(context));
  Packer packer;
  for (const at::Float32Precision* entry : entries) {
    packer.add(*entry, 3);
  }
  for (const at::SDPBackend backend : context.*get(Tag_sdp_priority_order())) {
    packer.add(backend, 3);
  }
  return packer.word();
}

// The dtypes of the devices for which autocast is on (which the excluded keys
// say as well).
uint64_t autocast(c10::DispatchKeySet excluded) {
  if ((c10::autocast_dispatch_keyset - excluded).empty()) {
    return 0;
  }
  Packer packer;
  for (const at::DeviceType device :
       at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    packer.add(
        at::autocast::is_autocast_enabled(device)
            ? static_cast<unsigned>(at::autocast::get_autocast_dtype(device)) +
                1
            : 0,
        kDtypeBits);
  }
  return packer.word();
}

std::string print_flag(const FlagField& field, uint64_t value) {
  if (field.bits == kDtypeBits) {
    return c10::toString(static_cast<at::ScalarType>(value));
  }
  return field.bits == 1 ? (value != 0 ? "on" : "off") : std::to_string(value);
}

std::string flag_difference(uint64_t was, uint64_t now) {
  unsigned shift = 0;
  for (const FlagField& field : kFlagFields) {
    const uint64_t mask = (uint64_t{1} << field.bits) - 1;
    const uint64_t a = was >> shift & mask;
    const uint64_t b = now >> shift & mask;
    if (a != b) {
      return c10::str(
          field.name,
          " was ",
          print_flag(field, a),
          ", now ",
          print_flag(field, b));
    }
    shift += field.bits;
  }
  return "";
}

// "CPU in BFloat16", or "off".
std::string print_autocast(uint64_t word) {
  std::string text;
  for (const at::DeviceType device :
       at::autocast::_AUTOCAST_SUPPORTED_DEVICES) {
    if (const uint64_t dtype = word & ((uint64_t{1} << kDtypeBits) - 1)) {
      text += c10::str(
          text.empty() ? "" : " and ",
          c10::DeviceTypeName(device),
          " in ",
          static_cast<at::ScalarType>(dtype - 1));
    }
    word >>= kDtypeBits;
  }
  return text.empty() ? "off" : text;
}

std::string print_keys(uint64_t word) {
  return c10::toString(c10::DispatchKeySet(c10::DispatchKeySet::RAW, word));
}

} // namespace

GlobalState GlobalState::current() {
  const c10::impl::LocalDispatchKeySet keys =
      c10::impl::tls_local_dispatch_key_set();
  // A pointer is kept: `globalContext` checks for its first call each time.
  static const at::Context& context = at::globalContext();
  GlobalState state;
  state.words[kIncluded] = keys.included_.raw_repr();
  state.words[kExcluded] = keys.excluded_.raw_repr();
  state.words[kFlags] = flags(context);
  state.words[kPrecision] = precision(context);
  state.words[kAutocast] = autocast(keys.excluded_);
  state.words[kGenerator] = reinterpret_cast<uintptr_t>(
      at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl());
  return state;
}

std::string GlobalState::difference(const GlobalState& then) const {
  // What has a name first: modes change the dispatch keys as well.
  if (words[kFlags] != then.words[kFlags]) {
    return flag_difference(words[kFlags], then.words[kFlags]);
  }
  if (words[kAutocast] != then.words[kAutocast]) {
    return c10::str(
        "autocast was ",
        print_autocast(words[kAutocast]),
        ", now ",
        print_autocast(then.words[kAutocast]));
  }
  if (words[kPrecision] != then.words[kPrecision]) {
    return "float32 precisions or the order of attention backends changed";
  }
  if (words[kGenerator] != then.words[kGenerator]) {
    return "the default generator is another one";
  }
  for (const auto& [word, name] :
       {std::pair{kIncluded, "included"}, {kExcluded, "excluded"}}) {
    if (words[word] != then.words[word]) {
      return c10::str(
          "the thread's ",
          name,
          " dispatch keys were ",
          print_keys(words[word]),
          ", now ",
          print_keys(then.words[word]));
    }
  }
  return "";
}

} // namespace temper::dispatch
