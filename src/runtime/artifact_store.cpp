// The in-memory artifact store.
#include "runtime/artifact_store.h"

#include <chrono>

#include "base/log.h"

namespace temper::runtime {

std::shared_ptr<const Artifact> ArtifactStore::get(
    const graph::Skeleton& skeleton,
    const std::string& variant,
    const Compile& compile) {
  const auto key = skeleton.hash.hex() + '/' + variant;
  std::shared_ptr<Entry> entry;
  std::unique_lock lock(mutex_);
  const auto find = [&]() -> std::shared_ptr<Entry> {
    const auto [first, last] = entries_.equal_range(key);
    for (auto it = first; it != last; ++it) {
      if (it->second->text == skeleton.text) {
        return it->second;
      }
    }
    return nullptr;
  };
  for (;;) {
    entry = find();
    if (!entry) {
      entry = std::make_shared<Entry>();
      entry->text = skeleton.text;
      entries_.emplace(key, entry);
    }
    if (entry->artifact) {
      TEMPER_LOG(kStore, "graph ", key, ": found");
      return entry->artifact;
    }
    if (!entry->compiling) {
      break;
    }
    done_.wait(lock);
  }
  entry->compiling = true;
  const bool is_new = compiled_.insert(skeleton.hash.hex()).second;
  lock.unlock();
  std::shared_ptr<const Artifact> artifact;
  const auto finish = [&] {
    lock.lock();
    entry->compiling = false;
    entry->artifact = artifact;
    const auto [first, last] = entries_.equal_range(key);
    for (auto it = first; it != last && artifact == nullptr; ++it) {
      if (it->second == entry) {
        entries_.erase(it); // a failed compile leaves no trace
        break;
      }
    }
    lock.unlock();
    done_.notify_all();
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    artifact = compile(is_new);
  } catch (...) {
    finish();
    TEMPER_LOG(kStore, "graph ", key, ": could not be compiled");
    throw;
  }
  finish();
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - start;
  TEMPER_LOG(kStore, "graph ", key, ": compiled in ", took.count(), " ms");
  return artifact;
}

size_t ArtifactStore::size() const {
  const std::scoped_lock lock(mutex_);
  return entries_.size();
}

void ArtifactStore::clear() {
  const std::scoped_lock lock(mutex_);
  entries_.clear();
  compiled_.clear();
}

ArtifactStore& default_store() {
  static auto& store = *new ArtifactStore();
  return store;
}

} // namespace temper::runtime
