// The artifacts of this process, by skeleton: equal graphs are compiled once,
// however many models, threads, sizes and flags use them.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "graph/skeleton.h"
#include "runtime/artifact.h"

namespace temper::runtime {

/// Thread-safe.
class ArtifactStore {
 public:
  /// `is_new`: the skeleton has not been compiled before, for no variant.
  using Compile = std::function<std::shared_ptr<const Artifact>(bool is_new)>;

  /// The artifact of this skeleton and variant: what it depends on besides, the
  /// backend and its options, as in "aten/accurate". If there is none, one
  /// caller runs `compile` while others that ask for the same wait; what it
  /// throws goes to that caller, and the next one tries again. Skeletons are
  /// compared by text, not only by hash. An artifact lives as long as the
  /// store.
  std::shared_ptr<const Artifact> get(
      const graph::Skeleton& skeleton,
      const std::string& variant,
      const Compile& compile);

  size_t size() const;
  /// Forgets all artifacts (those in use stay alive with their users).
  void clear();

 private:
  struct Entry {
    std::string text;
    bool compiling = false;
    std::shared_ptr<const Artifact> artifact;
  };
  mutable std::mutex mutex_;
  std::condition_variable done_;
  /// By hash and variant; entries of colliding hashes lie in one bucket.
  std::unordered_multimap<std::string, std::shared_ptr<Entry>> entries_;
  std::unordered_set<std::string> compiled_; ///< Hashes, of failed ones too.
};

/// The process's store. Never destroyed: backwards may run during exit.
ArtifactStore& default_store();

} // namespace temper::runtime
