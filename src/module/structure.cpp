// Taking apart the values whose type is known at run time only.
#include <ATen/EmptyTensor.h>
#include <torch/nn/utils/rnn.h>

#include "base/error.h"
#include "temper/detail/codecs.h"
#include "temper/detail/containers.h"

namespace temper::detail {

at::Tensor Source::take() {
  expect(1);
  return *next_++;
}

void Source::expect(ptrdiff_t n) const {
  TEMPER_INTERNAL(
      end_ - next_ >= n, "a result has fewer tensors than its prototype");
}

void Codec<c10::Scalar>::flatten(const c10::Scalar& value, Sink& sink) {
  if (value.isSymbolic()) {
    sink.reject("a symbolic number");
    return;
  }
  sink.bits(value.type());
  if (value.isComplex()) {
    detail::flatten_temporary(value.toComplexDouble(), sink);
  } else if (value.isFloatingPoint()) {
    sink.bits(value.toDouble());
  } else if (value.isBoolean()) {
    sink.bits(value.toBool());
  } else if (value.type() == c10::ScalarType::UInt64) {
    sink.bits(value.toUInt64());
  } else {
    sink.bits(value.toLong());
  }
}

void Codec<c10::TensorOptions>::flatten(
    const c10::TensorOptions& value,
    Sink& sink) {
  detail::flatten_temporary(value.device_opt(), sink);
  detail::flatten_temporary(value.dtype_opt(), sink);
  detail::flatten_temporary(value.layout_opt(), sink);
  detail::flatten_temporary(value.requires_grad_opt(), sink);
  detail::flatten_temporary(value.pinned_memory_opt(), sink);
  detail::flatten_temporary(value.memory_format_opt(), sink);
}

namespace {

enum class Tag : uint8_t {
  kNone,
  kTensor,
  kDouble,
  kComplex,
  kInt,
  kBool,
  kString,
  kDevice,
  kTuple,
  kList,
  kDict,
};

template <class Items>
void flatten_items(
    Tag tag,
    const c10::IValue& value,
    const Items& items,
    Sink& sink) {
  sink.bits(tag);
  sink.text(value.type()->annotation_str());
  sink.size(items.size());
  for (const c10::IValue& item : items) {
    flatten(item, sink);
  }
}

std::vector<c10::IValue> refill_items(
    c10::ArrayRef<c10::IValue> old,
    Source& source) {
  std::vector<c10::IValue> items = old.vec();
  for (c10::IValue& item : items) {
    refill(item, source);
  }
  return items;
}

} // namespace

void Codec<c10::IValue>::flatten(const c10::IValue& value, Sink& sink) {
  if (value.isNone()) {
    sink.bits(Tag::kNone);
  } else if (value.isTensor()) {
    sink.bits(Tag::kTensor);
    sink.tensor(value.toTensor());
  } else if (value.isDouble()) {
    sink.bits(Tag::kDouble);
    sink.bits(value.toDouble());
  } else if (value.isComplexDouble()) {
    sink.bits(Tag::kComplex);
    detail::flatten_temporary(value.toComplexDouble(), sink);
  } else if (value.isInt()) {
    sink.bits(Tag::kInt);
    sink.bits(value.toInt());
  } else if (value.isBool()) {
    sink.bits(Tag::kBool);
    sink.bits(value.toBool());
  } else if (value.isString()) {
    sink.bits(Tag::kString);
    sink.text(value.toStringRef());
  } else if (value.isDevice()) {
    sink.bits(Tag::kDevice);
    detail::flatten_temporary(value.toDevice(), sink);
  } else if (value.isTuple()) {
    // The type names the fields of a named tuple.
    flatten_items(Tag::kTuple, value, value.toTupleRef().elements(), sink);
  } else if (value.isList()) {
    flatten_items(Tag::kList, value, value.toListRef(), sink);
  } else if (value.isGenericDict()) {
    sink.bits(Tag::kDict);
    sink.text(value.type()->annotation_str());
    const auto dict = value.toGenericDict();
    sink.size(dict.size());
    for (const auto& entry : dict) {
      detail::flatten_temporary(entry.key(), sink);
      detail::flatten_temporary(entry.value(), sink);
    }
  } else {
    sink.reject("a TorchScript " + value.tagKind());
  }
}

void Codec<c10::IValue>::refill(c10::IValue& value, Source& source) {
  if (value.isTensor()) {
    value = source.tensor();
  } else if (value.isTuple()) {
    const auto& tuple = value.toTupleRef();
    const auto& old = tuple.elements();
    auto items = refill_items(
        c10::ArrayRef<c10::IValue>(old.begin(), old.end()), source);
    value = c10::ivalue::Tuple::createNamed(
        std::move(items), tuple.type<c10::TupleType>());
  } else if (value.isList()) {
    c10::impl::GenericList list(value.toList().elementType());
    for (auto& item : refill_items(value.toListRef(), source)) {
      list.push_back(std::move(item));
    }
    value = std::move(list);
  } else if (value.isGenericDict()) {
    const auto old = value.toGenericDict();
    c10::impl::GenericDict dict(old.keyType(), old.valueType());
    for (const auto& entry : old) {
      c10::IValue key = entry.key();
      c10::IValue item = entry.value();
      refill(key, source);
      refill(item, source);
      dict.insert(std::move(key), std::move(item));
    }
    value = std::move(dict);
  }
}

void Codec<torch::nn::utils::rnn::PackedSequence>::refill(
    Packed& value,
    Source& source) {
  at::Tensor data = source.tensor();
  at::Tensor batch_sizes = source.tensor();
  at::Tensor sorted = source.tensor();
  at::Tensor unsorted = source.tensor();
  if (!batch_sizes.defined()) {
    // The constructor asks for its device. Made without the dispatcher, so that
    // nobody records it.
    batch_sizes = at::detail::empty_cpu({0}, at::kLong);
  }
  value = Packed(
      std::move(data),
      std::move(batch_sizes),
      std::move(sorted),
      std::move(unsorted));
}

} // namespace temper::detail
