// Which recorder watches which storage.
#include "capture/raw_access.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace temper::capture {

const char* const kRawAccess =
    "the data of a tensor is read outside of tensor ops (data_ptr, an accessor, "
    "an Eigen map)";

namespace {

struct Registry {
  std::mutex mutex;
  /// Those that watch a storage: mostly one, several threads may share an
  /// argument.
  std::unordered_map<const c10::StorageImpl*, std::vector<RawAccess*>> watchers;

  static Registry& instance() {
    // Never destroyed: storages may outlive it.
    static Registry& registry = *new Registry;
    return registry;
  }
};

} // namespace

RawAccess::~RawAccess() {
  for (const auto& [storage, weak] : watched_) {
    // Also of a dead one, whose place the weak reference holds.
    unregister(storage);
  }
}

void RawAccess::watch(c10::ArrayRef<Storage> storages) {
  auto& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  for (const auto& storage : storages) {
    const bool is_new = watched_.try_emplace(storage.get(), storage).second;
    if (!is_new && storage->has_materializer()) {
      continue;
    }
    auto it = registry.watchers.find(storage.get());
    if (it == registry.watchers.end()) {
      it = registry.watchers.emplace(storage.get(), std::vector<RawAccess*>())
               .first;
    }
    if (is_new) {
      it->second.push_back(this);
    }
    if (!storage->has_materializer()) { // Else another one's, or a lazy copy.
      storage->set_materializer(&RawAccess::on_access);
    }
  }
}

void RawAccess::release(c10::StorageImpl* storage) {
  const auto it = watched_.find(storage);
  if (it != watched_.end()) {
    unregister(storage);
    watched_.erase(it);
  }
}

void RawAccess::unregister(c10::StorageImpl* storage) {
  auto& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  const auto it = registry.watchers.find(storage);
  auto& watchers = it->second;
  watchers.erase(
      std::remove(watchers.begin(), watchers.end(), this), watchers.end());
  if (watchers.empty()) {
    registry.watchers.erase(it);
    storage->clear_materializer();
  }
}

void RawAccess::resume() {
  thread_ = std::this_thread::get_id();
  running_.store(true, std::memory_order_release);
}

void RawAccess::pause() {
  running_.store(false, std::memory_order_release);
}

void RawAccess::on_access(c10::StorageImpl* storage) {
  auto& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  const auto it = registry.watchers.find(storage);
  if (it == registry.watchers.end()) {
    return;
  }
  for (auto* watcher : it->second) {
    if (watcher->running_.load(std::memory_order_acquire) &&
        watcher->operators_.load(std::memory_order_relaxed) == 0) {
      auto& seen = watcher->thread_ == std::this_thread::get_id()
          ? watcher->seen_
          : watcher->seen_elsewhere_;
      seen.store(true, std::memory_order_relaxed);
    }
  }
}

} // namespace temper::capture
