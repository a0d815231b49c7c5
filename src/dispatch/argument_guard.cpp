// Comparing argument metadata and aliasing in time linear in the arguments.
#include "dispatch/argument_guard.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <optional>

#include "dispatch/watch_state.h"

namespace temper::dispatch {

namespace {

const c10::TensorImpl& impl_of(const at::Tensor& tensor) {
  return *tensor.unsafeGetTensorImpl();
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && storage_of(impl_of(tensor)) != nullptr;
}

int64_t byte_offset(const c10::TensorImpl& impl) {
  return impl.storage_offset() * static_cast<int64_t>(impl.itemsize());
}

} // namespace

// Works out relations, argument by argument.
class ArgumentGuard::Relations {
 public:
  Relations(const std::vector<at::Tensor>& tensors, const State& state)
      : tensors_(tensors),
        state_(state),
        by_impl_(tensors.size()),
        by_storage_(tensors.size()) {
    if (state.has_moved()) {
      // The storages when the state was taken are not those of now.
      const size_t count = state.num_tensors();
      watched_.emplace(count);
      for (size_t i = 0; i < count; ++i) {
        watched_->insert(storage_of(state.tensor(i)), static_cast<int32_t>(i));
      }
    }
  }

  /// Of argument `i`; to be asked in order.
  Relation next(size_t i) {
    Relation relation;
    if (!has_memory(tensors_[i])) {
      return relation;
    }
    const c10::TensorImpl& impl = impl_of(tensors_[i]);
    const c10::StorageImpl* storage = storage_of(impl);
    const auto index = static_cast<int32_t>(i);
    relation.shares_watched =
        watched_ ? watched_->find(storage) : state_.first_in_storage(storage);
    if (relation.shares_watched >= 0) {
      const auto& other =
          state_.tensor(static_cast<size_t>(relation.shares_watched));
      relation.same_watched = state_.index_of(&impl);
      relation.distance = byte_offset(impl) - byte_offset(other);
    }
    const int32_t first = by_storage_.insert(storage, index);
    const int32_t same = by_impl_.insert(&impl, index);
    if (first != index) {
      relation.shares_argument = first;
      relation.distance = byte_offset(impl) -
          byte_offset(impl_of(tensors_[static_cast<size_t>(first)]));
    }
    if (same != index) {
      relation.same_argument = same;
    }
    return relation;
  }

 private:
  const std::vector<at::Tensor>& tensors_;
  const State& state_;
  AddressTable by_impl_;
  AddressTable by_storage_;
  std::optional<AddressTable> watched_;
};

// Overlaps of different storages, in a fixed order. Only memory that LibTorch
// did not allocate can overlap, so that most calls look at nothing else. Stops
// and returns false when `visit` does.
template <typename Visit>
bool ArgumentGuard::for_each_overlap(
    const std::vector<at::Tensor>& tensors,
    const Snapshot& snapshot,
    Visit visit) {
  const State& state = State::of(snapshot);
  const auto foreign = [](const at::Tensor& tensor) {
    return has_memory(tensor) && is_foreign(*storage_of(impl_of(tensor)));
  };
  const bool watched_foreign = state.has_foreign() || state.has_moved();
  if (!watched_foreign &&
      std::none_of(tensors.begin(), tensors.end(), foreign)) {
    return true;
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!has_memory(tensors[i])) {
      continue;
    }
    const c10::TensorImpl& impl = impl_of(tensors[i]);
    const c10::StorageImpl* storage = storage_of(impl);
    const Span span = storage_span(*storage);
    const auto differs = [&](const c10::TensorImpl& other,
                             size_t j,
                             bool watched) {
      const c10::StorageImpl* with = storage_of(other);
      if (with == nullptr || with == storage ||
          !(is_foreign(*with) || is_foreign(*storage)) ||
          !span.overlaps(storage_span(*with))) {
        return true;
      }
      const auto start = [](const c10::TensorImpl& tensor) {
        return static_cast<int64_t>(storage_span(*storage_of(tensor)).begin) +
            byte_offset(tensor);
      };
      return visit(Overlap{
          static_cast<int32_t>(i),
          static_cast<int32_t>(j),
          watched,
          start(impl) - start(other)});
    };
    for (size_t j = 0; j < i; ++j) {
      if (has_memory(tensors[j]) &&
          !differs(impl_of(tensors[j]), j, /*watched=*/false)) {
        return false;
      }
    }
    for (size_t j = 0; j < state.num_tensors(); ++j) {
      if (!differs(state.tensor(j), j, /*watched=*/true)) {
        return false;
      }
    }
  }
  return true;
}

ArgumentGuard::ArgumentGuard(
    const std::vector<at::Tensor>& tensors,
    const Snapshot& snapshot) {
  const State& state = State::of(snapshot);
  Relations relations(tensors, state);
  // Each tensor object once, by its memory.
  std::vector<std::pair<Span, const c10::TensorImpl*>> spans;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Entry entry;
    entry.defined = tensors[i].defined();
    if (entry.defined) {
      const c10::TensorImpl& impl = impl_of(tensors[i]);
      entry.plain = is_plain(impl);
      if (entry.plain) {
        entry.meta = TensorMeta::read(impl, dims_);
        entry.relation = relations.next(i);
        spans.emplace_back(tensor_span(impl), &impl);
      }
    }
    entries_.push_back(entry);
  }
  for_each_overlap(tensors, snapshot, [&](const Overlap& overlap) {
    overlaps_.push_back(overlap);
    return true;
  });

  for (size_t i = 0; i < state.num_tensors(); ++i) {
    spans.emplace_back(tensor_span(state.tensor(i)), &state.tensor(i));
  }
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.begin, a.second) <
        std::pair(b.first.begin, b.second);
  });
  spans.erase(
      std::unique(
          spans.begin(),
          spans.end(),
          [](const auto& a, const auto& b) { return a.second == b.second; }),
      spans.end());
  uintptr_t reached = 0;
  for (const auto& [span, impl] : spans) {
    aliased_ |= span.begin < span.end && span.begin < reached;
    reached = std::max(reached, span.end);
  }
}

bool ArgumentGuard::matches(
    const std::vector<at::Tensor>& tensors,
    const Snapshot& snapshot) const {
  if (tensors.size() != entries_.size()) {
    return false;
  }
  Relations relations(tensors, State::of(snapshot));
  const int64_t* dims = dims_.data();
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (tensors[i].defined() != entry.defined) {
      return false;
    }
    if (!entry.defined) {
      continue;
    }
    const c10::TensorImpl& impl = impl_of(tensors[i]);
    if (!entry.plain && !is_plain(impl)) {
      continue;
    }
    if (!entry.plain || !is_plain(impl) || !same_meta(impl, entry.meta, dims) ||
        relations.next(i) != entry.relation) {
      return false;
    }
  }
  size_t seen = 0;
  return for_each_overlap(
             tensors,
             snapshot,
             [&](const Overlap& overlap) {
               return seen < overlaps_.size() && overlaps_[seen++] == overlap;
             }) &&
      seen == overlaps_.size();
}

std::string ArgumentGuard::difference(
    const std::vector<at::Tensor>& tensors,
    const Snapshot& snapshot) const {
  const State& state = State::of(snapshot);
  if (tensors.size() != entries_.size()) {
    return c10::str(
        "there were ",
        entries_.size(),
        " tensor arguments, now ",
        tensors.size());
  }
  const auto name = [](int32_t i) { return c10::str("argument ", i); };
  const auto place = [&](int32_t i) {
    return c10::str("'", state.place(static_cast<size_t>(i)).path, "'");
  };
  // "is 'weight'", "shares its storage with x", "".
  const auto print = [&](const Relation& relation) -> std::string {
    if (relation.same_argument >= 0) {
      return "the same tensor as " + name(relation.same_argument);
    }
    if (relation.same_watched >= 0) {
      return "the tensor " + place(relation.same_watched);
    }
    const std::string with = relation.shares_argument >= 0
        ? name(relation.shares_argument)
        : relation.shares_watched >= 0 ? place(relation.shares_watched)
                                       : "";
    return with.empty()
        ? "in a storage of its own"
        : c10::str(
              "in the storage of ", with, " at distance ", relation.distance);
  };

  Relations relations(tensors, state);
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const std::string subject = name(static_cast<int32_t>(i));
    if (tensors[i].defined() != entry.defined) {
      return subject +
          (entry.defined ? " was a tensor, now undefined"
                         : " was undefined, now a tensor");
    }
    if (!entry.defined) {
      continue;
    }
    const c10::TensorImpl& impl = impl_of(tensors[i]);
    if (!entry.plain && !is_plain(impl)) {
      continue;
    }
    if (!entry.plain || !is_plain(impl)) {
      return subject + (entry.plain ? " is now" : " was") +
          " a tensor that guards can't describe (a sparse, nested, quantized "
          "or wrapped one)";
    }
    std::vector<int64_t> now_dims;
    const TensorMeta now = TensorMeta::read(impl, now_dims);
    if (std::string text = meta_difference(
            entry.meta, dims_.data(), now, now_dims.data(), subject);
        !text.empty()) {
      return text;
    }
    const Relation relation = relations.next(i);
    if (relation != entry.relation) {
      return c10::str(
          subject, " was ", print(entry.relation), ", now ", print(relation));
    }
  }
  std::vector<Overlap> overlaps;
  for_each_overlap(tensors, snapshot, [&](const Overlap& overlap) {
    overlaps.push_back(overlap);
    return true;
  });
  if (overlaps != overlaps_) {
    const auto [was, now] = std::mismatch(
        overlaps_.begin(), overlaps_.end(), overlaps.begin(), overlaps.end());
    const bool newly = now != overlaps.end();
    const Overlap& overlap = newly ? *now : *was;
    return c10::str(
        name(overlap.argument),
        newly ? " overlaps " : " no longer overlaps ",
        overlap.watched ? place(overlap.other) : name(overlap.other),
        newly ? " in another way than before" : "");
  }
  return "";
}

bool ArgumentGuard::plain() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return entry.plain || !entry.defined;
  });
}

bool ArgumentGuard::aliased() const {
  return aliased_;
}

} // namespace temper::dispatch
