// An argument of an operator call, boxed or not, looked at where it lies.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace temper::capture {

/// Made of what LibTorch's operators take, implicitly, as boxing does it; or of
/// what is boxed already. Must not outlive what it was made of.
class ArgumentRef {
 public:
  // NOLINTBEGIN(google-explicit-constructor)
  ArgumentRef(const at::Tensor& value) : value_(&value) {}
  ArgumentRef(bool value) : value_(value) {}
  ArgumentRef(int64_t value) : value_(value) {}
  ArgumentRef(double value) : value_(value) {}
  ArgumentRef(std::string_view value) : value_(value) {}
  ArgumentRef(c10::IntArrayRef value) : value_(value) {}
  ArgumentRef(c10::ScalarType value) : value_(static_cast<int64_t>(value)) {}
  ArgumentRef(c10::Layout value) : value_(static_cast<int64_t>(value)) {}
  ArgumentRef(c10::MemoryFormat value) : value_(static_cast<int64_t>(value)) {}
  ArgumentRef(const c10::SymInt& value) {
    if (!value.is_heap_allocated()) {
      value_ = value.as_int_unchecked();
    }
  }
  ArgumentRef(c10::SymIntArrayRef value) {
    if (const auto ints = c10::asIntArrayRefSlowOpt(value)) {
      value_ = *ints;
    }
  }
  ArgumentRef(const at::Scalar& value) {
    if (value.isBoolean()) {
      value_ = value.toBool();
    } else if (value.isIntegral(/*includeBool=*/false)) {
      value_ = value.toLong();
    } else if (value.isFloatingPoint()) {
      value_ = value.toDouble();
    }
  }
  ArgumentRef(const c10::Device& /*value*/) {}
  ArgumentRef(const at::Generator& /*value*/) {}
  template <class T>
  ArgumentRef(const std::optional<T>& value)
      : ArgumentRef(
            value.has_value() ? ArgumentRef(*value) : ArgumentRef(None())) {}
  template <class T>
  ArgumentRef(const c10::OptionalArrayRef<T>& value)
      : ArgumentRef(
            value.has_value() ? ArgumentRef(*value) : ArgumentRef(None())) {}
  // NOLINTEND(google-explicit-constructor)
  explicit ArgumentRef(const c10::IValue& boxed) {
    if (boxed.isTensor()) {
      value_ = &boxed.toTensor();
    } else if (boxed.isNone()) {
      value_ = None();
    } else {
      value_ = &boxed;
    }
  }

  bool is_none() const {
    return std::holds_alternative<None>(value_);
  }
  /// Null if it is no tensor.
  const at::Tensor* tensor() const {
    const auto* value = std::get_if<const at::Tensor*>(&value_);
    return value == nullptr ? nullptr : *value;
  }
  /// None if it is no list, or one that has no form here (of tensors or flags,
  /// unless boxed).
  std::optional<size_t> list_size() const;
  /// `list_size()` is not none; the index is below it.
  ArgumentRef element(size_t index) const;
  /// As `graph::same_constant` of the argument boxed, but false of what has no
  /// form here unless it is boxed: devices, generators, complex and symbolic
  /// numbers.
  bool same(const c10::IValue& constant) const;

 private:
  struct Other {};
  struct None {};
  explicit ArgumentRef(None value) : value_(value) {}

  std::variant<
      Other,
      None,
      const at::Tensor*,
      bool,
      int64_t,
      double,
      std::string_view,
      c10::IntArrayRef,
      const c10::IValue*>
      value_;
};

} // namespace temper::capture
