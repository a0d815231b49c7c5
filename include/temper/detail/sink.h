// Taking structured values apart into tensors and bytes, and back: the parts
// that do not depend on types.
//
// A value of type T is *flattened* to its tensors, in order, and to bytes that
// hold all else: numbers, lengths, keys, whether an optional is set. Given T,
// the bytes can be read from front to back in one way only, so two values of
// the same type have equal bytes iff they differ in tensors at most.
// *Refilling* a copy of the value puts other tensors in the same places.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <temper/export.h>

namespace torch::nn {
class Module;
}

namespace temper::detail {

/// Where an object lies in memory.
struct Extent {
  const char* begin;
  const char* end;
};

/// Where a flattened value goes.
class Sink {
 public:
  /// State may hold `modules`; arguments and results may not.
  Sink(
      std::vector<at::Tensor>& tensors,
      std::string& bytes,
      std::vector<const torch::nn::Module*>* modules = nullptr)
      : tensors_(tensors), bytes_(bytes), modules_(modules) {}

  void tensor(const at::Tensor& value) {
    tensors_.push_back(value);
  }
  void tensor(at::Tensor&& value) {
    tensors_.push_back(std::move(value));
  }
  /// A module, by identity; null is none.
  void module(const torch::nn::Module* value) {
    bits(reinterpret_cast<uintptr_t>(value));
    if (modules_ == nullptr) {
      reject("a module");
    } else if (value != nullptr) {
      modules_->push_back(value);
    }
  }
  /// `T` must have no padding.
  template <class T>
  requires std::is_trivially_copyable_v<T>
  void bits(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void size(size_t value) {
    bits(static_cast<uint64_t>(value));
  }
  void text(std::string_view value) {
    size(value.size());
    bytes_.append(value);
  }
  /// From now on the extents of the value's parts are noted, too.
  void note_extents(std::vector<Extent>& extents) {
    extents_ = &extents;
  }
  void visit(const void* begin, size_t size) {
    if (extents_ != nullptr) {
      const auto* first = static_cast<const char*>(begin);
      if (!extents_->empty() && extents_->back().end == first) {
        extents_->back().end = first + size; // The elements of an array.
      } else {
        extents_->push_back({first, first + size});
      }
    }
  }
  /// The value holds something that cannot be told by value: the call runs
  /// eagerly, with this reason. The first reason counts.
  void reject(const std::string& reason) {
    if (rejected_.empty()) {
      rejected_ = reason;
    }
  }
  /// Empty: all is well.
  const std::string& rejected() const {
    return rejected_;
  }

 private:
  std::vector<at::Tensor>& tensors_;
  std::string& bytes_;
  std::vector<const torch::nn::Module*>* modules_;
  std::vector<Extent>* extents_ = nullptr;
  std::string rejected_;
};

/// Where refilled values get their tensors from.
class Source {
 public:
  /// Undefined tensors, as many as asked for: what is left is a prototype.
  Source() = default;
  explicit Source(const std::vector<at::Tensor>& tensors)
      : next_(tensors.data()), end_(next_ + tensors.size()), blank_(false) {}

  at::Tensor tensor() {
    return blank_ ? at::Tensor() : take();
  }
  /// Throws temper's own error unless `n` tensors are left.
  TEMPER_API void expect(ptrdiff_t n) const;

 private:
  TEMPER_API at::Tensor take();

  const at::Tensor* next_ = nullptr;
  const at::Tensor* end_ = nullptr;
  bool blank_ = true;
};

/// How values of a type are taken apart and refilled:
///   static void flatten(const T&, Sink&);
///   static void refill(T&, Source&);   // T is then copyable, too
/// `kFlattens` and `kRefills` say which of them there are. Both are false here:
/// the type holds something that is neither tensor nor plain value.
template <class T>
struct Codec {
  static constexpr bool kFlattens = false;
  static constexpr bool kRefills = false;
};

/// The base of codecs that can do both.
struct BothWays {
  static constexpr bool kFlattens = true;
  static constexpr bool kRefills = true;
};

template <class T>
constexpr bool kFlattens = Codec<T>::kFlattens;
template <class T>
constexpr bool kRefills = Codec<T>::kRefills;

/// Takes `value` apart.
template <class T>
void flatten(const T& value, Sink& sink) {
  sink.visit(std::addressof(value), sizeof(T));
  Codec<T>::flatten(value, sink);
}

/// Takes apart what is no object of the caller's, but made on the way.
template <class T>
void flatten_temporary(const T& value, Sink& sink) {
  Codec<T>::flatten(value, sink);
}

/// Puts the next tensors of `source` into `value`.
template <class T>
void refill(T& value, Source& source) {
  Codec<T>::refill(value, source);
}

/// A copy of `prototype` with the next tensors of `source`.
template <class T>
T unflatten(const T& prototype, Source& source) {
  T value = prototype;
  Codec<T>::refill(value, source);
  return value;
}

/// A copy that keeps no tensor alive.
template <class T>
T prototype_of(const T& value) {
  Source blank;
  return unflatten(value, blank);
}

} // namespace temper::detail
