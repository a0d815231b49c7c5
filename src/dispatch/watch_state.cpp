// Saving the state of watched objects and comparing it with the present.
#include "dispatch/watch_state.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/thread_object.h"

namespace temper::dispatch {

namespace {

constexpr size_t kWord = sizeof(uint64_t);

uint64_t load(const std::byte* address) {
  uint64_t word = 0;
  std::memcpy(&word, address, kWord);
  return word;
}

// memcmp for the short ranges that most are: a pointer, two pointers, a few
// fields.
inline bool same_bytes(const std::byte* a, const std::byte* b, size_t size) {
  const auto differ = [&](size_t i) { return load(a + i) ^ load(b + i); };
  if (size == kWord) {
    return differ(0) == 0;
  }
  if (size == 2 * kWord) {
    return (differ(0) | differ(kWord)) == 0;
  }
  size_t i = 0;
  for (; i + kWord <= size; i += kWord) {
    if (differ(i) != 0) {
      return false;
    }
  }
  for (; i < size; ++i) {
    if (a[i] != b[i]) {
      return false;
    }
  }
  return true;
}

// Reads a declared field. The buffers are kept by the thread, so that guards
// don't allocate; the tensors are let go at once.
class Reader {
 public:
  explicit Reader(const ReadField& read)
      : content_(base::ThreadObject<FieldContent>::get()) {
    content_.bytes.clear();
    content_.modules.clear();
    content_.tensors.clear(); // The last one may have thrown.
    read(content_);
  }
  ~Reader() {
    content_.tensors.clear();
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const FieldContent& content() const {
    return content_;
  }

 private:
  FieldContent& content_;
};

const c10::TensorImpl* impl_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.unsafeGetTensorImpl() : nullptr;
}

} // namespace

void State::add_bytes(
    Kind kind,
    const std::string& owner,
    const void* object,
    const void* begin,
    size_t size) {
  if (size == 0) {
    return;
  }
  if (owners_.empty() || owners_.back() != owner) {
    owners_.push_back(owner);
  }
  const auto* first = static_cast<const std::byte*>(begin);
  ranges_.push_back(
      {first,
       static_cast<uint32_t>(size),
       static_cast<uint32_t>(bytes_.size())});
  infos_.push_back(
      {kind,
       static_cast<uint32_t>(owners_.size() - 1),
       static_cast<const std::byte*>(object)});
  bytes_.insert(bytes_.end(), first, first + size);
  bytes_.resize((bytes_.size() + kWord - 1) / kWord * kWord);
}

bool State::add_tensor(const c10::TensorImpl* impl, const Place& place) {
  if (!is_plain(*impl)) {
    return false;
  }
  if (!added_.insert(impl).second) {
    return true;
  }
  const c10::StorageImpl* storage = storage_of(*impl);
  tensors_.push_back({impl, storage, TensorMeta::read(*impl, dims_)});
  places_.push_back(place);
  weak_tensors_.emplace_back(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::
          reclaim_copy(const_cast<c10::TensorImpl*>(impl)));
  weak_storages_.emplace_back(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          const_cast<c10::StorageImpl*>(storage)));
  has_foreign_ |= is_foreign(*storage);
  return true;
}

void State::add_content(const std::string& name, const ReadField& read) {
  const Reader now(read);
  Content content{
      ranges_.size(),
      name,
      read,
      now.content().bytes,
      {},
      !now.content().modules.empty()};
  for (const at::Tensor& tensor : now.content().tensors) {
    content.tensors.push_back(impl_of(tensor));
    if (tensor.defined() &&
        !add_tensor(
            impl_of(tensor),
            {graph::Role::kField,
             c10::str(name, "[", content.tensors.size() - 1, "]")})) {
      set_unguardable(c10::str(
          "'",
          name,
          "' holds a tensor that guards can't describe ",
          "(a sparse, nested, quantized or wrapped one); make it a plain strided ",
          "tensor, or list it in TEMPER_IGNORE(...) if no result depends on it"));
    }
  }
  contents_.push_back(std::move(content));
}

void State::set_unguardable(std::string reason) {
  if (unguardable_.empty()) {
    unguardable_ = std::move(reason);
  }
}

void State::seal() {
  by_impl_.emplace(tensors_.size());
  by_storage_.emplace(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    by_impl_->insert(tensors_[i].impl, index);
    sharing_.push_back(by_storage_->insert(tensors_[i].storage, index));
  }
  added_.clear();
}

bool State::same_ranges(size_t first, size_t last) const {
  const std::byte* saved = bytes_.data();
  for (size_t i = first; i < last; ++i) {
    const Range& range = ranges_[i];
    if (!same_bytes(range.begin, saved + range.saved, range.size)) {
      return false;
    }
  }
  return true;
}

bool State::same_content(const Content& content) const {
  const Reader now(content.read);
  const FieldContent& is = now.content();
  return is.bytes == content.bytes &&
      std::equal(
             is.tensors.begin(),
             is.tensors.end(),
             content.tensors.begin(),
             content.tensors.end(),
             [](const at::Tensor& tensor, const c10::TensorImpl* impl) {
               return impl_of(tensor) == impl;
             });
}

bool State::matches() const {
  size_t next = 0;
  for (const Content& content : contents_) {
    if (!same_ranges(next, content.after)) {
      return false;
    }
    next = content.after;
    if (!same_content(content)) {
      return false;
    }
  }
  if (!same_ranges(next, ranges_.size())) {
    return false;
  }
  bool moved = false;
  const int64_t* dims = dims_.data();
  for (const Tensor& tensor : tensors_) {
    const c10::TensorImpl& impl = *tensor.impl;
    if (!same_meta(impl, tensor.meta, dims) ||
        impl.storage_offset() != tensor.meta.storage_offset) {
      return false;
    }
    moved |= storage_of(impl) != tensor.storage;
  }
  return !moved || same_sharing();
}

// Adds what of a range is unchanged. False if it has changed in a way that
// leaves nothing to say about what comes after it.
bool State::add_unchanged(const State& from, size_t range) {
  const Range& of = from.ranges_[range];
  const RangeInfo& info = from.infos_[range];
  const std::string& owner = from.owners_[info.owner];
  if (info.kind == Kind::kElements) {
    return true; // The vector may let go of them.
  }
  const std::byte* was = from.bytes_.data() + of.saved;
  if (same_bytes(of.begin, was, of.size)) {
    add_bytes(info.kind, owner, info.object, of.begin, of.size);
    return true;
  }
  if (info.kind != Kind::kFields && info.kind != Kind::kTraining) {
    return false;
  }
  // Word by word; a range may begin and end inside of one.
  size_t size = 0;
  for (size_t at = 0; at < of.size; at += size) {
    const auto address = reinterpret_cast<uintptr_t>(of.begin + at);
    size = std::min<size_t>(kWord - address % kWord, of.size - at);
    if (std::memcmp(of.begin + at, was + at, size) == 0) {
      add_bytes(info.kind, owner, info.object, of.begin + at, size);
    }
  }
  return true;
}

std::shared_ptr<const State> State::unchanged() const {
  auto left = std::make_shared<State>();
  size_t next = 0;
  bool goes_on = true;
  const auto add_ranges = [&](size_t last) {
    for (; next < last && goes_on; ++next) {
      goes_on = left->add_unchanged(*this, next);
    }
  };
  for (const Content& content : contents_) {
    add_ranges(content.after);
    if (!goes_on) {
      break;
    }
    if (same_content(content)) {
      left->contents_.push_back(content);
      left->contents_.back().after = left->ranges_.size();
    } else if (content.holds_modules) {
      goes_on = false;
      break;
    }
  }
  add_ranges(ranges_.size());
  left->seal();
  return left;
}

bool State::is_gone() const {
  return std::any_of(
      weak_tensors_.begin(), weak_tensors_.end(), [](const auto& tensor) {
        return tensor.expired();
      });
}

bool State::has_moved() const {
  bool moved = false;
  for (const Tensor& tensor : tensors_) {
    moved |= storage_of(*tensor.impl) != tensor.storage;
  }
  return moved;
}

// Whether the same tensors as then share storages, whichever these are.
bool State::same_sharing() const {
  AddressTable now(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const c10::StorageImpl* storage = storage_of(*tensors_[i].impl);
    if (storage == nullptr ||
        now.insert(storage, static_cast<int32_t>(i)) != sharing_[i]) {
      return false;
    }
  }
  return true;
}

std::optional<Place> State::find(const at::Tensor& tensor) const {
  const int32_t index = tensor.defined() ? index_of(impl_of(tensor)) : -1;
  if (index < 0) {
    return std::nullopt;
  }
  return places_[static_cast<size_t>(index)];
}

std::optional<std::pair<at::Tensor, Place>> State::find_memory(
    const at::Tensor& tensor) const {
  const auto* storage = tensor.storage().unsafeGetStorageImpl();
  const int32_t first = first_in_storage(storage);
  for (auto i = static_cast<size_t>(first); first >= 0 && i < tensors_.size();
       ++i) {
    if (sharing_[i] != first) {
      continue;
    }
    at::Tensor watched(weak_tensors_[i].lock());
    if (watched.defined() && watched.has_storage() &&
        watched.storage().unsafeGetStorageImpl() == storage &&
        watched.storage_offset() == tensor.storage_offset() &&
        watched.sizes() == tensor.sizes() &&
        watched.strides() == tensor.strides() &&
        watched.scalar_type() == tensor.scalar_type() &&
        watched.is_conj() == tensor.is_conj() &&
        watched.is_neg() == tensor.is_neg()) {
      return std::pair(std::move(watched), places_[i]);
    }
  }
  return std::nullopt;
}

std::vector<std::pair<at::Tensor, Place>> State::tensors() const {
  std::vector<std::pair<at::Tensor, Place>> all;
  all.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    at::Tensor tensor(weak_tensors_[i].lock());
    if (tensor.defined()) {
      all.emplace_back(std::move(tensor), places_[i]);
    }
  }
  return all;
}

} // namespace temper::dispatch
