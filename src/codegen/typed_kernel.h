// Typed kernels: one instantiation an operator, which decodes an instruction's
// arguments and calls at::_ops::X::call without boxing.
//
// `Decoded<T>` makes the argument of parameter type T from a register, a
// constant or a slot. A type without one does not compile: such an operator
// stays a boxed call.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "program/program.h"

namespace temper::codegen {

/// An operator with a typed kernel.
struct KernelEntry {
  const char* name; ///< "aten::add"
  const char* overload; ///< "Tensor"
  program::Kernel kernel;
};

namespace detail {

using program::Argument;
using program::Frame;

inline const at::Tensor& tensor_at(const Frame& frame, program::Register r) {
  static const at::Tensor undefined;
  return r < 0 ? undefined : frame.registers[static_cast<size_t>(r)];
}

/// The scalar argument as an IValue; None if it is none.
inline const c10::IValue& scalar_at(const Argument& argument, Frame& frame) {
  return argument.kind == Argument::Kind::kSlot
      ? frame.slots[static_cast<size_t>(argument.single)]
      : argument.constant;
}

inline double real(const c10::IValue& value) {
  return value.isDouble() ? value.toDouble()
                          : static_cast<double>(value.toInt());
}

template <class T>
T scalar_to(const c10::IValue& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value.toBool();
  } else if constexpr (std::is_same_v<T, double>) {
    return real(value);
  } else if constexpr (std::is_same_v<T, c10::SymInt>) {
    return c10::SymInt(value.toInt());
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    return value.toScalar();
  } else if constexpr (std::is_same_v<T, c10::string_view>) {
    return value.toStringView();
  } else if constexpr (std::is_same_v<T, at::Device>) {
    return value.toDevice();
  } else if constexpr (std::is_same_v<T, at::Generator>) {
    return value.toGenerator();
  } else {
    // int64_t and the enums that the dispatcher passes as int
    return static_cast<T>(value.toInt());
  }
}

template <class T>
concept ScalarLike = std::is_same_v<T, bool> || std::is_same_v<T, double> ||
    std::is_same_v<T, int64_t> || std::is_same_v<T, c10::SymInt> ||
    std::is_same_v<T, at::Scalar> || std::is_same_v<T, c10::string_view> ||
    std::is_same_v<T, at::Device> || std::is_same_v<T, at::ScalarType> ||
    std::is_same_v<T, at::Layout> || std::is_same_v<T, at::MemoryFormat> ||
    std::is_same_v<T, at::Generator>;

template <class T>
struct Decoded; // not every type can be decoded

template <>
struct Decoded<const at::Tensor&> {
  Decoded(const Argument& argument, Frame& frame)
      : value(tensor_at(frame, argument.single)) {}
  const at::Tensor& get() {
    return value;
  }
  const at::Tensor& value;
};

template <>
struct Decoded<at::Tensor&> {
  Decoded(const Argument& argument, Frame& frame)
      : value(frame.registers[static_cast<size_t>(argument.single)]) {}
  at::Tensor& get() {
    return value;
  }
  at::Tensor& value;
};

template <>
struct Decoded<const std::optional<at::Tensor>&> {
  Decoded(const Argument& argument, Frame& frame) {
    if (argument.single >= 0) {
      value = tensor_at(frame, argument.single);
    }
  }
  const std::optional<at::Tensor>& get() const {
    return value;
  }
  std::optional<at::Tensor> value;
};

template <ScalarLike T>
struct Decoded<T> {
  Decoded(const Argument& argument, Frame& frame)
      : value(scalar_at(argument, frame)) {}
  T get() {
    return scalar_to<T>(value);
  }
  const c10::IValue& value;
};

template <ScalarLike T>
struct Decoded<std::optional<T>> {
  Decoded(const Argument& argument, Frame& frame) {
    if (argument.kind == Argument::Kind::kObject) {
      value = scalar_to<T>(frame.objects[static_cast<size_t>(argument.single)]);
    } else if (const c10::IValue& scalar = scalar_at(argument, frame);
               !scalar.isNone()) {
      value = scalar_to<T>(scalar);
    }
  }
  std::optional<T> get() {
    return std::move(value);
  }
  std::optional<T> value;
};

template <>
struct Decoded<const at::Scalar&> {
  Decoded(const Argument& argument, Frame& frame)
      : value(scalar_at(argument, frame).toScalar()) {}
  const at::Scalar& get() const {
    return value;
  }
  at::Scalar value;
};

template <>
struct Decoded<const std::optional<at::Scalar>&>
    : Decoded<std::optional<at::Scalar>> {
  using Decoded<std::optional<at::Scalar>>::Decoded;
  const std::optional<at::Scalar>& get() {
    return value;
  }
};

/// A list of ints: decoded once, or gathered from slots.
struct Ints {
  Ints(const Argument& argument, Frame& frame)
      : defined(argument.kind != Argument::Kind::kNone) {
    if (argument.kind == Argument::Kind::kConstant) {
      if (argument.constant.isInt()) { // one int for a list of fixed length
        gathered.push_back(argument.constant.toInt());
        value = gathered;
      } else {
        value = argument.ints;
        defined = !argument.constant.isNone();
      }
    } else {
      for (const int32_t slot : argument.index) {
        gathered.push_back(frame.slots[static_cast<size_t>(slot)].toInt());
      }
      value = gathered;
    }
  }
  Ints(const Ints&) = delete;
  Ints& operator=(const Ints&) = delete;

  c10::SymIntArrayRef symbolic() const {
    return c10::fromIntArrayRefUnchecked(value);
  }

  bool defined;
  c10::SmallVector<int64_t, 6> gathered;
  at::IntArrayRef value;
};

template <>
struct Decoded<at::IntArrayRef> : Ints {
  using Ints::Ints;
  at::IntArrayRef get() {
    return value;
  }
};

template <>
struct Decoded<c10::SymIntArrayRef> : Ints {
  using Ints::Ints;
  c10::SymIntArrayRef get() {
    return symbolic();
  }
};

template <>
struct Decoded<at::OptionalIntArrayRef> : Ints {
  using Ints::Ints;
  at::OptionalIntArrayRef get() {
    return defined ? at::OptionalIntArrayRef(value) : std::nullopt;
  }
};

template <>
struct Decoded<at::OptionalSymIntArrayRef> : Ints {
  using Ints::Ints;
  at::OptionalSymIntArrayRef get() {
    return defined ? at::OptionalSymIntArrayRef(symbolic()) : std::nullopt;
  }
};

template <>
struct Decoded<std::optional<at::ArrayRef<double>>> {
  Decoded(const Argument& argument, Frame& frame) {
    if (argument.kind == Argument::Kind::kSlotList) {
      for (const int32_t slot : argument.index) {
        values.push_back(real(frame.slots[static_cast<size_t>(slot)]));
      }
      defined = true;
    } else if (!argument.constant.isNone()) {
      for (const double element : argument.constant.toDoubleVector()) {
        values.push_back(element);
      }
      defined = true;
    }
  }
  std::optional<at::ArrayRef<double>> get() {
    return defined ? std::optional<at::ArrayRef<double>>(values) : std::nullopt;
  }
  bool defined = false;
  c10::SmallVector<double, 4> values;
};

template <size_t N>
struct Decoded<std::array<bool, N>> {
  Decoded(const Argument& argument, Frame&) {
    const c10::List<bool> list = argument.constant.toBoolList();
    for (size_t i = 0; i < N; ++i) {
      value[i] = list.get(i);
    }
  }
  std::array<bool, N> get() {
    return value;
  }
  std::array<bool, N> value{};
};

struct Tensors {
  Tensors(const Argument& argument, Frame& frame) {
    for (const program::Register r : argument.index) {
      value.push_back(tensor_at(frame, r));
    }
  }
  c10::SmallVector<at::Tensor, 8> value;
};

template <>
struct Decoded<at::TensorList> : Tensors {
  using Tensors::Tensors;
  at::TensorList get() {
    return value;
  }
};

template <>
struct Decoded<const at::ITensorListRef&> : Tensors {
  Decoded(const Argument& argument, Frame& frame)
      : Tensors(argument, frame), reference(at::TensorList(value)) {}
  const at::ITensorListRef& get() const {
    return reference;
  }
  at::ITensorListRef reference;
};

template <>
struct Decoded<const c10::List<std::optional<at::Tensor>>&> {
  Decoded(const Argument& argument, Frame& frame) {
    value.reserve(argument.index.size());
    for (const program::Register r : argument.index) {
      value.push_back(
          r < 0 ? std::optional<at::Tensor>() : tensor_at(frame, r));
    }
  }
  const c10::List<std::optional<at::Tensor>>& get() const {
    return value;
  }
  c10::List<std::optional<at::Tensor>> value;
};

/// Puts returned tensors into registers, flattened; other results are dropped.
struct Store {
  const program::Instruction& instruction;
  Frame& frame;
  size_t next = 0;

  void operator()(at::Tensor&& result) {
    const program::Register r = instruction.results[next++];
    if (r >= 0) {
      frame.registers[static_cast<size_t>(r)] = std::move(result);
    }
  }
  void operator()(std::vector<at::Tensor>&& results) {
    for (at::Tensor& result : results) {
      (*this)(std::move(result));
    }
  }
  /// A written operand: its register has it already.
  void operator()(const at::Tensor&) {
    ++next;
  }
  void operator()(at::Tensor&) {
    ++next;
  }
  template <class... Ts>
  void operator()(std::tuple<Ts...>&& results) {
    std::apply(
        [&](auto&... each) { ((*this)(static_cast<Ts&&>(each)), ...); },
        results);
  }
  template <class T>
  requires(std::is_arithmetic_v<T> || std::is_same_v<T, c10::SymInt>) void
  operator()(T&&) {}
};

template <class Op, class Signature>
struct Typed;

template <class Op, class R, class... Ps>
struct Typed<Op, R(Ps...)> {
  static void run(const program::Instruction& instruction, Frame& frame) {
    call(instruction, frame, std::index_sequence_for<Ps...>());
  }

  template <size_t... I>
  static void call(
      const program::Instruction& instruction,
      Frame& frame,
      std::index_sequence<I...>) {
    const Argument* arguments = instruction.arguments.data();
    // Each temporary lives until the end of the full expression.
    if constexpr (std::is_void_v<R>) {
      Op::call(Decoded<Ps>(arguments[I], frame).get()...);
    } else {
      Store{instruction, frame}(
          Op::call(Decoded<Ps>(arguments[I], frame).get()...));
    }
  }
};

} // namespace detail

/// The entry of at::_ops::X.
template <class Op>
constexpr KernelEntry typed() {
  return {
      Op::name,
      Op::overload_name,
      &detail::Typed<Op, typename Op::schema>::run};
}

} // namespace temper::codegen
