// Kernels on temper's key for the ops that networks call most. A shadow run,
// whose cost is all overhead, takes their arguments as they are: boxing them
// would be an eighth of it. Other interceptors, and what differs from the
// trace, go the way of every op.
#include <ATen/core/boxing/impl/boxing.h>
#include <torch/library.h>

#include <array>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/_unsafe_view_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/alias_ops.h>
#include <ATen/ops/as_strided_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/detach_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/permute_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/select_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/t_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/transpose_ops.h>
#include <ATen/ops/unsqueeze_ops.h>
#include <ATen/ops/view_ops.h>
#include <ATen/ops/where_ops.h>

#include "capture/argument_ref.h"
#include "capture/interceptor_kernel.h"

namespace temper::capture {
namespace {

template <class R>
struct Returned; // How many tensors, and how they are returned.

template <>
struct Returned<at::Tensor> {
  static constexpr size_t kCount = 1;
  template <class... Ps>
  static at::Tensor give(std::array<at::Tensor, 1>& results, Ps&... /*args*/) {
    return std::move(results[0]);
  }
};

// Of an in-place op: its first operand.
template <>
struct Returned<at::Tensor&> {
  static constexpr size_t kCount = 1;
  template <class... Ps>
  static at::Tensor& give(
      std::array<at::Tensor, 1>& /*results*/,
      at::Tensor& self,
      Ps&... /*others*/) {
    return self;
  }
};

template <class... Rs>
struct Returned<std::tuple<Rs...>> {
  static_assert((std::is_same_v<Rs, at::Tensor> && ...));
  static constexpr size_t kCount = sizeof...(Rs);
  template <class... Ps>
  static std::tuple<Rs...> give(
      std::array<at::Tensor, kCount>& results,
      Ps&... /*args*/) {
    return std::apply(
        [](auto&... each) { return std::tuple<Rs...>(std::move(each)...); },
        results);
  }
};

template <class Op, class Signature>
struct Unboxed;

template <class Op, class R, class... Ps>
struct Unboxed<Op, R(Ps...)> {
  static R call(c10::DispatchKeySet keys, Ps... args) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(
        Op::name, Op::overload_name);
    if (auto* interceptor = current_interceptor()) {
      std::array<at::Tensor, Returned<R>::kCount> results;
      const std::array<ArgumentRef, sizeof...(Ps)> refs = {
          ArgumentRef(args)...};
      if (interceptor->handle_unboxed(op, refs, results)) {
        return Returned<R>::give(results, args...);
      }
    }
    static const auto boxed = c10::BoxedKernel::makeFromFunction<&intercept>();
    return c10::impl::BoxedKernelWrapper<R(Ps...)>::call(
        boxed, op, keys, std::forward<Ps>(args)...);
  }
};

template <class Op>
void add(torch::Library& library) {
  constexpr auto kKernel = &Unboxed<Op, typename Op::schema>::call;
  const std::string overload = Op::overload_name;
  library.impl(
      (overload.empty() ? Op::name : Op::name + ("." + overload)).c_str(),
      c10::CompileTimeFunctionPointer<
          std::remove_pointer_t<decltype(kKernel)>,
          kKernel>());
}

template <class... Ops>
void add_all(torch::Library& library) {
  (add<Ops>(library), ...);
}

} // namespace
} // namespace temper::capture

// NOLINTNEXTLINE: the macro makes a static registrar.
TORCH_LIBRARY_IMPL(aten, Fake, library) {
  namespace ops = at::_ops;
  temper::capture::add_all<
      // Views.
      ops::_unsafe_view,
      ops::alias,
      ops::as_strided,
      ops::detach,
      ops::expand,
      ops::permute,
      ops::select_int,
      ops::slice_Tensor,
      ops::squeeze_dim,
      ops::t,
      ops::transpose_int,
      ops::unsqueeze,
      ops::view,
      // Matrix products, convolutions, look-ups.
      ops::addmm,
      ops::baddbmm,
      ops::bmm,
      ops::convolution,
      ops::embedding,
      ops::mm,
      // Elementwise.
      ops::add_Tensor,
      ops::add__Tensor,
      ops::bernoulli__float,
      ops::clone,
      ops::copy_,
      ops::div_Tensor,
      ops::div__Tensor,
      ops::empty_like,
      ops::exp,
      ops::gelu,
      ops::masked_fill_Scalar,
      ops::mul_Tensor,
      ops::mul__Tensor,
      ops::native_dropout,
      ops::neg,
      ops::pow_Tensor_Scalar,
      ops::relu,
      ops::rsqrt,
      ops::sigmoid,
      ops::silu,
      ops::sub_Tensor,
      ops::tanh,
      ops::_to_copy,
      ops::where_self,
      // Reductions and normalisations.
      ops::_log_softmax,
      ops::_softmax,
      ops::mean_dim,
      ops::native_batch_norm,
      ops::native_layer_norm,
      ops::sum_dim_IntList>(library);
}
