// An argument of an operator call, looked at where it lies: nothing is boxed.
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

#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

namespace temper::capture {

/// Made of what LibTorch's operators take, implicitly, as boxing does it. Must
/// not outlive what it was made of.
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

  bool is_none() const {
    return std::holds_alternative<None>(value_);
  }
  /// Null if it is no tensor.
  const at::Tensor* tensor() const {
    const auto* value = std::get_if<const at::Tensor*>(&value_);
    return value == nullptr ? nullptr : *value;
  }
  /// Null if it is no list of integers.
  const c10::IntArrayRef* ints() const {
    return std::get_if<c10::IntArrayRef>(&value_);
  }
  /// As `graph::same_constant` of the argument boxed, but false of what has no
  /// form here: devices, generators, complex and symbolic numbers.
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
      c10::IntArrayRef>
      value_;
};

} // namespace temper::capture
