// Saying what has changed since a state was taken.
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "dispatch/watch_state.h"

namespace temper::dispatch {

namespace {

constexpr size_t kWord = sizeof(uint64_t);

// Fields have no known type: an integer, and a floating point number if the
// bits make a reasonable one.
std::string print(const std::byte* bytes, size_t size) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, size);
  std::string text = c10::str(static_cast<int64_t>(word));
  if (size == kWord && word != 0) {
    text += c10::str(" (as a double ", std::bit_cast<double>(word), ")");
  }
  return text;
}

} // namespace

std::string State::range_difference(size_t i) const {
  const Range& range = ranges_[i];
  const RangeInfo& info = infos_[i];
  const std::string& owner = owners_[info.owner];
  const std::byte* was = bytes_.data() + range.saved;
  const std::byte* is = range.begin;
  const std::byte* end = is + range.size;
  const std::byte* first = std::mismatch(is, end, was).first;
  if (first == end) {
    return "";
  }
  const auto subject = [&](const char* what) {
    return c10::str("'", owner, "'", what);
  };
  switch (info.kind) {
    case Kind::kType:
      return subject(" is a module of another type");
    case Kind::kTraining:
      return subject(
          *was == std::byte{0}
              ? " was in evaluation mode, now in training mode"
              : " was in training mode, now in evaluation mode");
    case Kind::kParameters:
      return subject(": parameters were added or removed");
    case Kind::kBuffers:
      return subject(": buffers were added or removed");
    case Kind::kChildren:
      return subject(": submodules were added or removed");
    case Kind::kTensorSlot:
      return subject(" is another tensor");
    case Kind::kChildSlot:
      return subject(" is another module");
    case Kind::kFields:
    case Kind::kElements:
      break;
  }
  // The aligned word with the first difference, as far as it is in the range.
  const auto address = reinterpret_cast<uintptr_t>(first);
  const std::byte* begin = std::max(is, first - address % kWord);
  const std::byte* last = std::min(end, first - address % kWord + kWord);
  const auto size = static_cast<size_t>(last - begin);
  const std::string change = c10::str(
      " changed from ",
      print(was + (begin - is), size),
      " to ",
      print(begin, size));
  const std::byte* object = info.object;
  if (info.kind == Kind::kElements) {
    return c10::str(
        "element ",
        static_cast<size_t>(begin - is) / kWord,
        " of the ",
        owner,
        change);
  }
  return c10::str(
      subject(": field at bytes "),
      begin - object,
      "..",
      last - object - 1,
      change);
}

std::string State::tensor_difference(size_t i) const {
  const Tensor& tensor = tensors_[i];
  const std::string subject = c10::str("'", places_[i].path, "'");
  if (storage_of(*tensor.impl) == nullptr) {
    return subject + " is gone";
  }
  std::vector<int64_t> dims;
  const TensorMeta now = TensorMeta::read(*tensor.impl, dims);
  std::string text =
      meta_difference(tensor.meta, dims_.data(), now, dims.data(), subject);
  if (text.empty() && tensor.meta.storage_offset != now.storage_offset) {
    text = c10::str(
        subject,
        ".storage_offset() was ",
        tensor.meta.storage_offset,
        ", now ",
        now.storage_offset);
  }
  return text;
}

std::string State::content_difference(const Content& content) const {
  FieldContent now;
  content.read(now);
  const std::string subject = c10::str("field '", content.name, "'");
  if (now.bytes != content.bytes) {
    return subject + " changed";
  }
  if (now.tensors.size() != content.tensors.size()) {
    return c10::str(
        subject,
        " had ",
        content.tensors.size(),
        " tensors, now ",
        now.tensors.size());
  }
  for (size_t i = 0; i < now.tensors.size(); ++i) {
    const auto* impl = now.tensors[i].defined()
        ? now.tensors[i].unsafeGetTensorImpl()
        : nullptr;
    if (impl != content.tensors[i]) {
      return c10::str("'", content.name, "[", i, "]' is another tensor");
    }
  }
  return "";
}

std::string State::difference() const {
  // In the order of `matches`.
  size_t next = 0;
  for (size_t i = 0; i <= ranges_.size(); ++i) {
    for (; next < contents_.size() && contents_[next].after == i; ++next) {
      std::string text = content_difference(contents_[next]);
      if (!text.empty()) {
        return text;
      }
    }
    std::string text = i < ranges_.size() ? range_difference(i) : "";
    if (!text.empty()) {
      return text;
    }
  }
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (std::string text = tensor_difference(i); !text.empty()) {
      return text;
    }
  }
  AddressTable now(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int32_t with =
        now.insert(storage_of(*tensors_[i].impl), static_cast<int32_t>(i));
    if (with != sharing_[i]) {
      const auto self = static_cast<int32_t>(i);
      const bool newly = with != self;
      const auto other = static_cast<size_t>(newly ? with : sharing_[i]);
      return c10::str(
          "'",
          places_[i].path,
          "' and '",
          places_[other].path,
          newly ? "' share memory now" : "' no longer share memory");
    }
  }
  return "";
}

} // namespace temper::dispatch
