// TEMPER_FIELDS and TEMPER_IGNORE: what guards see of a module.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dispatch/watch.h"
#include "module/watched_state.h"
#include "temper/temper.h"

namespace {

using torch::Tensor;

struct Config {
  double gain = 1.0;
  std::vector<int64_t> shape{1, 2};
};

struct ListedImpl : temper::Module<ListedImpl> {
  std::vector<double> scales{1.0, 2.0};
  std::map<std::string, Tensor> masks;
  std::shared_ptr<Config> config = std::make_shared<Config>();
  std::string text = std::string(100, 'a');
  int64_t calls = 0;
  std::vector<std::string> log;
  double gain = 1.0;

  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x * gain;
  }
  TEMPER_FIELDS(scales, masks, config, text)
  TEMPER_IGNORE(calls, log)
};
TEMPER_MODULE(Listed);

// The same fields, not declared.
struct UnlistedImpl : temper::Module<UnlistedImpl> {
  std::vector<double> scales{1.0, 2.0};
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x * scales[0];
  }
};
TEMPER_MODULE(Unlisted);

struct ParentImpl : temper::Module<ParentImpl> {
  Listed child{nullptr};
  torch::nn::Linear fc{nullptr};
  ParentImpl() {
    reset();
  }
  void reset() override {
    child = register_module("child", Listed());
    fc = register_module("fc", torch::nn::Linear(2, 2));
  }
  Tensor forward(const Tensor& x) {
    return child(fc(x));
  }
};
TEMPER_MODULE(Parent);

// What a call site sees of a module.
class Seen {
 public:
  explicit Seen(torch::nn::Module& module) {
    temper::module::WatchedState state(watch_);
    state.module(module);
    take();
  }
  void take() {
    snapshot_ = watch_.take();
  }
  bool matches() const {
    return watch_.matches(*snapshot_);
  }
  std::string unguardable() const {
    return snapshot_->unguardable();
  }
  std::string difference() const {
    return watch_.difference(*snapshot_);
  }
  bool finds(const Tensor& tensor) const {
    return snapshot_->find(tensor).has_value();
  }

 private:
  temper::dispatch::Watch watch_;
  std::shared_ptr<const temper::dispatch::Snapshot> snapshot_;
};

TEST(FieldsTest, DeclaredContainersAreWatchedByContent) {
  Listed listed;
  listed->compile();
  listed(torch::ones({1}));
  Seen seen(*listed);
  EXPECT_EQ(seen.unguardable(), "");
  EXPECT_TRUE(seen.matches()) << seen.difference();

  listed->scales[1] = 3.0;
  EXPECT_FALSE(seen.matches());
  EXPECT_NE(seen.difference().find("scales"), std::string::npos);
  listed->scales[1] = 2.0;
  EXPECT_TRUE(seen.matches());

  listed->config->shape.push_back(3);
  EXPECT_FALSE(seen.matches());
  listed->config->shape.pop_back();
  EXPECT_TRUE(seen.matches());

  listed->text.back() = 'b';
  EXPECT_FALSE(seen.matches());
  listed->text.back() = 'a';
  EXPECT_TRUE(seen.matches());

  listed->masks["m"] = torch::ones({2});
  EXPECT_FALSE(seen.matches());
  seen.take();
  EXPECT_TRUE(seen.finds(listed->masks["m"]));
  EXPECT_TRUE(seen.matches());
  listed->masks["m"] = torch::ones({2});
  EXPECT_FALSE(seen.matches());
}

TEST(FieldsTest, PlainFieldsAreWatchedWithoutAList) {
  Listed listed;
  Seen seen(*listed);
  listed->gain = 2.0;
  EXPECT_FALSE(seen.matches());
}

TEST(FieldsTest, IgnoredFieldsAreNot) {
  Listed listed;
  Seen seen(*listed);
  listed->calls += 1;
  listed->log.emplace_back("a line");
  EXPECT_TRUE(seen.matches()) << seen.difference();
}

TEST(FieldsTest, UndeclaredContainersAreNotVouchedFor) {
  Unlisted unlisted;
  EXPECT_NE(Seen(*unlisted).unguardable(), "");
}

TEST(FieldsTest, CompiledStateIsNoPartOfTheState) {
  Parent parent;
  Seen seen(*parent);
  EXPECT_EQ(seen.unguardable(), "");
  parent->compile();
  parent->child->compile();
  parent->child(torch::ones({1}));
  EXPECT_TRUE(seen.matches()) << seen.difference();
  seen.take();
  EXPECT_EQ(seen.unguardable(), "");
  parent(torch::ones({2, 2}));
}

TEST(FieldsTest, ChildrenRegisteredLaterAreKnown) {
  Parent parent;
  Seen seen(*parent);
  parent->register_module("later", std::make_shared<ListedImpl>());
  EXPECT_FALSE(seen.matches());
  seen.take();
  EXPECT_EQ(seen.unguardable(), "");
}

TEST(FieldsTest, ModulesInsideContainersOfTorch) {
  torch::nn::ModuleList list;
  list->push_back(std::make_shared<ListedImpl>());
  EXPECT_EQ(Seen(*list).unguardable(), "");
  torch::nn::Sequential sequential{Parent(), torch::nn::ReLU()};
  EXPECT_EQ(Seen(*sequential).unguardable(), "");
}

struct ForeignChildImpl : torch::nn::Module {
  double gain = 1.0;
};
struct ForeignImpl : torch::nn::Module {
  ForeignImpl() {
    register_module("child", std::make_shared<ForeignChildImpl>());
  }
};

TEST(FieldsTest, TypesThatOnlyTorchHasMet) {
  ForeignImpl foreign;
  EXPECT_NE(Seen(foreign).unguardable(), "");
  temper::know_modules<ForeignImpl, ForeignChildImpl>();
  EXPECT_EQ(Seen(foreign).unguardable(), "");
}

} // namespace
