// Which recorder watches which storage.
#include "capture/raw_access.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace temper::capture {

const char* const kRawAccess =
    "the data of a tensor is read outside of tensor ops (data_ptr, an accessor, "
    "an Eigen map)";

namespace {

// One that is watched.
struct Watched {
  std::vector<RawAccess*> by; ///< Mostly one; threads may share an argument.
  bool hooked = false; ///< With our hook, which is gone when it was called.
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const c10::StorageImpl*, Watched> storages;

  static Registry& instance() {
    // Never destroyed: storages may outlive it.
    static Registry& registry = *new Registry;
    return registry;
  }
};

} // namespace

RawAccess::~RawAccess() {
  release_all();
}

void RawAccess::watch(c10::ArrayRef<Storage> storages) {
  auto& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  for (const auto& storage : storages) {
    auto it = registry.storages.find(storage.get());
    const bool hooked = it != registry.storages.end() && it->second.hooked;
    if (!hooked && storage->has_materializer()) {
      continue; // LibTorch's own, of a lazy copy.
    }
    if (it == registry.storages.end()) {
      it = registry.storages.try_emplace(storage.get()).first;
    }
    if (watched_.try_emplace(storage.get(), storage).second) {
      it->second.by.push_back(this);
    }
    if (!hooked) {
      storage->set_materializer(&RawAccess::on_access);
      it->second.hooked = true;
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

void RawAccess::release_all() {
  for (const auto& [storage, weak] : watched_) {
    // Also of a dead one, whose place the weak reference holds.
    unregister(storage);
  }
  watched_.clear();
}

void RawAccess::unregister(c10::StorageImpl* storage) {
  auto& registry = Registry::instance();
  const std::scoped_lock lock(registry.mutex);
  const auto it = registry.storages.find(storage);
  auto& [by, hooked] = it->second;
  by.erase(std::remove(by.begin(), by.end(), this), by.end());
  if (by.empty()) {
    if (hooked) {
      storage->clear_materializer();
    }
    registry.storages.erase(it);
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
  const auto it = registry.storages.find(storage);
  if (it == registry.storages.end()) {
    return;
  }
  it->second.hooked = false; // LibTorch takes it off behind this call.
  for (auto* watcher : it->second.by) {
    const bool is_own = watcher->thread_.load() == std::this_thread::get_id();
    const bool is_operators =
        watcher->foreign_operators_.load(std::memory_order_relaxed) > 0 ||
        (watcher->operators_.load(std::memory_order_relaxed) > 0 &&
         (is_own || at::in_parallel_region()));
    if (watcher->running_.load(std::memory_order_acquire) && !is_operators) {
      auto& seen = is_own ? watcher->seen_ : watcher->seen_elsewhere_;
      seen.store(true, std::memory_order_relaxed);
    }
  }
}

} // namespace temper::capture
