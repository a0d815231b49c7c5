// What GlobalState sees: each switch, its undoing, and what it leaves out.
#include "dispatch/global_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/torch.h>

#include <functional>
#include <thread>
#include <utility>

namespace temper::dispatch {
namespace {

using testing::HasSubstr;

struct Switch {
  std::string text; // Of the difference.
  std::function<void()> on;
  std::function<void()> off;
};

at::Context& context() {
  return at::globalContext();
}

// Members of Context whose setters ask the machine first. (C++ ignores access
// in explicit instantiations.)
template <typename Tag, auto member>
struct Expose {
  friend auto get(Tag) {
    return member;
  }
};
struct LinalgBackend {
  friend auto get(LinalgBackend);
};
template struct Expose<LinalgBackend, &at::Context::linalg_preferred_backend>;
struct Tf32OneDnn {
  friend auto get(Tf32OneDnn);
};
template struct Expose<Tf32OneDnn, &at::Context::allow_tf32_onednn>;
struct ReductionCpu {
  friend auto get(ReductionCpu);
};
template struct Expose<ReductionCpu, &at::Context::allow_fp16_reduction_cpu>;

// A generator in the place of the default one, and back.
void exchange_default_generator() {
  static at::Generator other = at::detail::createCPUGenerator();
  auto& usual =
      const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
  std::swap(usual, other);
}

// A switch of Context by its setter, which is not at `value` by default.
template <typename Value>
Switch of_context(
    std::string text,
    void (at::Context::*set)(Value),
    Value value,
    Value usual) {
  return {
      std::move(text),
      [=] { (context().*set)(value); },
      [=] { (context().*set)(usual); }};
}

std::vector<Switch> switches() {
  using at::Context;
  const auto precision = [](at::Float32Backend backend,
                            at::Float32Op op,
                            at::Float32Precision usual,
                            at::Float32Precision value =
                                at::Float32Precision::IEEE) {
    return Switch{
        "float32 precisions",
        [=] { context().setFloat32Precision(backend, op, value); },
        [=] { context().setFloat32Precision(backend, op, usual); }};
  };
  return {
      {"grad mode was on, now off",
       [] { at::GradMode::set_enabled(false); },
       [] { at::GradMode::set_enabled(true); }},
      {"forward grad mode was on, now off",
       [] { c10::AutogradState::get_tls_state().set_fw_grad_mode(false); },
       [] { c10::AutogradState::get_tls_state().set_fw_grad_mode(true); }},
      {"view replay was off, now on",
       [] {
         c10::AutogradState::get_tls_state().set_view_replay_enabled(true);
       },
       [] {
         c10::AutogradState::get_tls_state().set_view_replay_enabled(false);
       }},
      {"gradient layout enforcement was on, now off",
       [] {
         c10::AutogradState::get_tls_state()
             .set_grad_layout_enforcement_enabled(false);
       },
       [] {
         c10::AutogradState::get_tls_state()
             .set_grad_layout_enforcement_enabled(true);
       }},
      {"default dtype was Float, now Double",
       [] { torch::set_default_dtype(caffe2::TypeMeta::Make<double>()); },
       [] { torch::set_default_dtype(caffe2::TypeMeta::Make<float>()); }},
      {"autocast was off, now CPU in BFloat16",
       [] { at::autocast::set_autocast_enabled(at::kCPU, true); },
       [] { at::autocast::set_autocast_enabled(at::kCPU, false); }},
      {"autocast was off, now CUDA in Half",
       [] { at::autocast::set_autocast_enabled(at::kCUDA, true); },
       [] { at::autocast::set_autocast_enabled(at::kCUDA, false); }},
      {"deterministic algorithms was off, now on",
       [] { context().setDeterministicAlgorithms(true, false); },
       [] { context().setDeterministicAlgorithms(false, false); }},
      {"warn-only determinism",
       [] { context().setDeterministicAlgorithms(false, true); },
       [] { context().setDeterministicAlgorithms(false, false); }},
      of_context(
          "filling of new memory",
          &Context::setDeterministicFillUninitializedMemory,
          false,
          true),
      of_context(
          "deterministic cuDNN", &Context::setDeterministicCuDNN, true, false),
      of_context(
          "deterministic oneDNN",
          &Context::setDeterministicMkldnn,
          true,
          false),
      of_context("oneDNN was on", &Context::setUserEnabledMkldnn, false, true),
      of_context("cuDNN was on", &Context::setUserEnabledCuDNN, false, true),
      of_context("NNPACK", &Context::setUserEnabledNNPACK, false, true),
      of_context(
          "cuDNN benchmarking", &Context::setBenchmarkCuDNN, true, false),
      of_context("flash attention 3", &Context::setSDPUseFA3, true, false),
      of_context("flash attention 4", &Context::setSDPUseFA4, true, false),
      of_context(
          "flash attention was on", &Context::setSDPUseFlash, false, true),
      of_context(
          "memory-efficient attention",
          &Context::setSDPUseMemEfficient,
          false,
          true),
      of_context("math attention was on", &Context::setSDPUseMath, false, true),
      of_context("cuDNN attention", &Context::setSDPUseCuDNN, false, true),
      of_context(
          "overrideable attention",
          &Context::setSDPUseOverrideable,
          false,
          true),
      of_context(
          "math attention in half",
          &Context::setAllowFP16BF16ReductionMathSDP,
          true,
          false),
      of_context(
          "TF32 in cuDNN was on", &Context::setAllowTF32CuDNN, false, true),
      of_context(
          "fp16 sums in cuBLAS",
          &Context::setAllowFP16AccumulationCuBLAS,
          true,
          false),
      of_context(
          "native AOT kernels", &Context::setAllowNativeAot, false, true),
      of_context(
          "masked native AOT kernels",
          &Context::setMaskUnconditionalNativeAot,
          true,
          false),
      of_context(
          "BLAS backend",
          &Context::setBlasPreferredBackend,
          at::BlasBackend::Ck,
          at::BlasBackend::Cublas),
      of_context(
          "quantized engine",
          &Context::setQEngine,
          at::QEngine::QNNPACK,
          at::QEngine::X86),
      {"linear algebra backend",
       [] { context().*get(LinalgBackend()) = at::LinalgBackend::Magma; },
       [] { context().*get(LinalgBackend()) = at::LinalgBackend::Default; }},
      {"TF32 in oneDNN",
       [] { context().*get(Tf32OneDnn()) = true; },
       [] { context().*get(Tf32OneDnn()) = false; }},
      {"fp16 reduction on the CPU",
       [] { context().*get(ReductionCpu()) = true; },
       [] { context().*get(ReductionCpu()) = false; }},
      {"float32 matmul precision",
       [] { context().setFloat32MatmulPrecision("medium"); },
       [] { context().setFloat32MatmulPrecision("highest"); }},
      precision(
          at::Float32Backend::GENERIC,
          at::Float32Op::ALL,
          at::Float32Precision::NONE),
      precision(
          at::Float32Backend::MKLDNN,
          at::Float32Op::CONV,
          at::Float32Precision::NONE),
      precision(
          at::Float32Backend::MKLDNN,
          at::Float32Op::RNN,
          at::Float32Precision::NONE),
      precision(
          at::Float32Backend::MKLDNN,
          at::Float32Op::ALL,
          at::Float32Precision::NONE),
      precision(
          at::Float32Backend::MKLDNN,
          at::Float32Op::MATMUL,
          at::Float32Precision::IEEE,
          at::Float32Precision::TF32),
      precision(
          at::Float32Backend::CUDA,
          at::Float32Op::ALL,
          at::Float32Precision::NONE),
      precision(
          at::Float32Backend::CUDA,
          at::Float32Op::CONV,
          at::Float32Precision::TF32),
      precision(
          at::Float32Backend::CUDA,
          at::Float32Op::RNN,
          at::Float32Precision::TF32),
      precision(
          at::Float32Backend::CUDA,
          at::Float32Op::MATMUL,
          at::Float32Precision::IEEE,
          at::Float32Precision::TF32),
      {"fp16 reduction in cuBLAS",
       [] { context().setAllowFP16ReductionCuBLAS(false); },
       [] { context().setAllowFP16ReductionCuBLAS(true); }},
      {"bf16 reduction in cuBLAS",
       [] { context().setAllowBF16ReductionCuBLAS(false); },
       [] { context().setAllowBF16ReductionCuBLAS(true); }},
      {"order of attention backends",
       [] {
         context().setSDPPriorityOrder({0, 1, 2, 3, 4});
       },
       [] {
         context().setSDPPriorityOrder({1, 2, 0, 3, 4});
       }},
      {"anomaly mode was off, now on",
       [] { torch::autograd::AnomalyMode::set_enabled(true); },
       [] { torch::autograd::AnomalyMode::set_enabled(false); }},
      {"anomaly mode's check for NaN was on, now off",
       [] { torch::autograd::AnomalyMode::set_enabled(false, false); },
       [] { torch::autograd::AnomalyMode::set_enabled(false, true); }},
      {"saved-tensor hooks was off, now on",
       [] {
         // Of no interpreter: nothing is saved meanwhile.
         at::SavedTensorDefaultHooks::lazy_initialize();
         at::SavedTensorDefaultHooks::push_hooks(
             c10::SafePyObject(nullptr, nullptr),
             c10::SafePyObject(nullptr, nullptr));
       },
       [] {
         if (!at::SavedTensorDefaultHooks::get_tls_state().stack.empty()) {
           at::SavedTensorDefaultHooks::pop_hooks();
         }
       }},
      {"the default generator is another one",
       [] { exchange_default_generator(); },
       [] { exchange_default_generator(); }},
      {"disabling of saved-tensor hooks",
       [] { at::SavedTensorDefaultHooks::disable("not here"); },
       [] { at::SavedTensorDefaultHooks::enable(); }},
      {"forward-mode AD",
       [] { torch::autograd::ForwardADLevel::get_next_idx(); },
       [] { torch::autograd::ForwardADLevel::release_idx(0); }},
      {"included dispatch keys",
       [] {
         c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Fake, true);
       },
       [] {
         c10::impl::tls_set_dispatch_key_included(
             c10::DispatchKey::Fake, false);
       }},
      {"excluded dispatch keys",
       [] {
         c10::impl::tls_set_dispatch_key_excluded(
             c10::DispatchKey::ADInplaceOrView, true);
       },
       [] {
         c10::impl::tls_set_dispatch_key_excluded(
             c10::DispatchKey::ADInplaceOrView, false);
       }},
  };
}

TEST(GlobalState, EverySwitchIsSeenNamedAndUndone) {
  // What was never set may be something else than what it is reset to.
  for (const Switch& change : switches()) {
    if (change.text != "forward-mode AD" &&
        change.text != "the default generator is another one") {
      change.off();
    }
  }
  std::vector<GlobalState> seen;
  const GlobalState usual = GlobalState::current();
  for (const Switch& change : switches()) {
    SCOPED_TRACE(change.text);
    change.on();
    const GlobalState now = GlobalState::current();
    change.off();
    EXPECT_NE(usual, now);
    EXPECT_THAT(usual.difference(now), HasSubstr(change.text));
    EXPECT_EQ(usual, GlobalState::current())
        << usual.difference(GlobalState::current());
    for (const GlobalState& other : seen) {
      EXPECT_NE(other, now);
    }
    seen.push_back(now);
  }
  EXPECT_EQ(usual.difference(usual), "");
}

TEST(GlobalState, InferenceModeIsSeen) {
  const GlobalState usual = GlobalState::current();
  GlobalState now;
  {
    c10::InferenceMode mode;
    now = GlobalState::current();
  }
  EXPECT_NE(usual, now);
  EXPECT_EQ(usual, GlobalState::current());
}

TEST(GlobalState, TheDtypeOfAutocastIsSeenWhileItIsOn) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const GlobalState half = GlobalState::current();
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  EXPECT_EQ(
      half.difference(GlobalState::current()),
      "autocast was CPU in BFloat16, now CPU in Half");
  at::autocast::set_autocast_enabled(at::kCPU, false);
  const GlobalState off = GlobalState::current();
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  EXPECT_EQ(off, GlobalState::current());
}

TEST(GlobalState, WhatProgramsObeyIsLeftOut) {
  const GlobalState usual = GlobalState::current();
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_EQ(usual, GlobalState::current());
  at::set_num_threads(threads);
  at::autocast::set_autocast_cache_enabled(false);
  EXPECT_EQ(usual, GlobalState::current());
  at::autocast::set_autocast_cache_enabled(true);
  torch::manual_seed(3);
  torch::randn({2});
  EXPECT_EQ(usual, GlobalState::current());
}

TEST(GlobalState, IsOfTheThread) {
  const GlobalState usual = GlobalState::current();
  torch::NoGradGuard guard;
  GlobalState there;
  std::thread([&] { there = GlobalState::current(); }).join();
  EXPECT_EQ(usual, there);
  EXPECT_NE(usual, GlobalState::current());
}

} // namespace
} // namespace temper::dispatch
