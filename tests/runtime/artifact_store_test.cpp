// The artifact store: one compile a key, and failures that leave no trace.
#include "runtime/artifact_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"

namespace temper::runtime {
namespace {

graph::Skeleton skeleton_of(const std::string& text) {
  graph::Skeleton skeleton;
  skeleton.text = text;
  skeleton.hash = base::hash128(text);
  return skeleton;
}

TEST(ArtifactStore, CompilesAKeyOnce) {
  ArtifactStore store;
  int compiles = 0;
  const auto compile = [&](bool) {
    ++compiles;
    return std::make_shared<const Artifact>();
  };
  const auto a = store.get(skeleton_of("a"), "aten", compile);
  EXPECT_EQ(store.get(skeleton_of("a"), "aten", compile), a);
  EXPECT_EQ(compiles, 1);
  EXPECT_NE(store.get(skeleton_of("b"), "aten", compile), a);
  EXPECT_NE(store.get(skeleton_of("a"), "mine", compile), a);
  EXPECT_EQ(compiles, 3);
  EXPECT_EQ(store.size(), 3);
  store.clear();
  EXPECT_EQ(store.size(), 0);
}

TEST(ArtifactStore, TellsSkeletonsThatAreNewFromNewVariants) {
  ArtifactStore store;
  std::vector<bool> news;
  const auto ask = [&](const char* text, const char* variant) {
    try {
      store.get(
          skeleton_of(text),
          variant,
          [&](bool is_new) -> std::shared_ptr<const Artifact> {
            news.push_back(is_new);
            if (std::string(variant) == "bad") {
              throw std::runtime_error("no");
            }
            return std::make_shared<const Artifact>();
          });
    } catch (const std::runtime_error&) {
    }
  };
  ask("a", "bad");
  ask("a", "bad");
  ask("a", "aten");
  ask("a", "aten");
  ask("b", "aten");
  ask("b", "mine");
  EXPECT_EQ(news, (std::vector<bool>{true, false, false, true, false}));
}

TEST(ArtifactStore, LogsWhatItFindsAndWhatIsCompiled) {
  const base::LogCapture log;
  base::set_log_topics("store");
  ArtifactStore store;
  const graph::Skeleton skeleton = skeleton_of("a");
  const std::string graph =
      "temper: graph " + skeleton.hash.hex() + "/aten/fast: ";
  EXPECT_THROW(
      store.get(
          skeleton,
          "aten/fast",
          [](bool) -> std::shared_ptr<const Artifact> {
            throw std::runtime_error("no");
          }),
      std::runtime_error);
  for (int i = 0; i < 2; ++i) {
    store.get(skeleton, "aten/fast", [](bool) {
      return std::make_shared<const Artifact>();
    });
  }
  base::set_log_topics("");
  const auto lines = log.lines();
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], graph + "could not be compiled");
  EXPECT_EQ(lines[1].rfind(graph + "compiled in ", 0), 0U) << lines[1];
  EXPECT_EQ(lines[2], graph + "found");
}

TEST(ArtifactStore, ComparesTextsNotOnlyHashes) {
  ArtifactStore store;
  const auto compile = [](bool) { return std::make_shared<const Artifact>(); };
  graph::Skeleton a = skeleton_of("a");
  graph::Skeleton b = skeleton_of("b");
  b.hash = a.hash;
  EXPECT_NE(store.get(a, "aten", compile), store.get(b, "aten", compile));
}

TEST(ArtifactStore, ThreadsThatAskAtOnceWaitForOneCompile) {
  ArtifactStore store;
  std::atomic<int> compiles{0};
  std::vector<std::shared_ptr<const Artifact>> got(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i) {
    threads.emplace_back([&, i] {
      got[i] = store.get(skeleton_of("a"), "aten", [&](bool) {
        ++compiles;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        return std::make_shared<const Artifact>();
      });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(compiles, 1);
  for (const auto& artifact : got) {
    EXPECT_EQ(artifact, got[0]);
  }
}

TEST(ArtifactStore, AFailedCompileLeavesNoTrace) {
  ArtifactStore store;
  std::atomic<int> compiles{0};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      try {
        store.get(
            skeleton_of("a"),
            "aten",
            [&](bool) -> std::shared_ptr<const Artifact> {
              ++compiles;
              std::this_thread::sleep_for(std::chrono::milliseconds(20));
              throw std::runtime_error("no");
            });
      } catch (const std::runtime_error&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(failures, 8);
  EXPECT_EQ(compiles, 8); // each that waited tries itself
  EXPECT_EQ(store.size(), 0);
  EXPECT_NE(
      store.get(
          skeleton_of("a"),
          "aten",
          [](bool) { return std::make_shared<const Artifact>(); }),
      nullptr);
}

} // namespace
} // namespace temper::runtime
