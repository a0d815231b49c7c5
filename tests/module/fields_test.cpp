// TEMPER_FIELDS and TEMPER_IGNORE: what guards see of a module.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
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

// Modules that nobody registers, in each kind of field.
struct KeeperImpl : temper::Module<KeeperImpl> {
  std::vector<torch::nn::Linear> layers;
  std::map<std::string, Listed> heads;
  std::array<std::shared_ptr<torch::nn::LinearImpl>, 2> pair;
  std::optional<Parent> maybe;
  torch::nn::AnyModule any;
  std::shared_ptr<torch::nn::Module> base;

  void reset() override {}
  Tensor forward(Tensor x) {
    for (auto& layer : layers) {
      x = layer(x);
    }
    for (auto& [name, head] : heads) {
      x = head->forward(x);
    }
    return x;
  }
  TEMPER_FIELDS(layers, heads, pair, maybe, any, base)
};
TEMPER_MODULE(Keeper);

TEST(FieldsTest, ModulesInDeclaredFieldsAreWatchedWithTheirTrees) {
  Keeper keeper;
  Seen seen(*keeper);
  EXPECT_EQ(seen.unguardable(), "");
  EXPECT_TRUE(seen.matches()) << seen.difference();
  const auto changed = [&](const std::string& what) {
    EXPECT_FALSE(seen.matches());
    EXPECT_NE(seen.difference().find(what), std::string::npos)
        << seen.difference();
    seen.take();
    EXPECT_EQ(seen.unguardable(), "");
    EXPECT_TRUE(seen.matches()) << seen.difference();
  };
  keeper->layers.emplace_back(2, 2);
  changed("field 'layers' changed");
  keeper->layers.emplace_back(2, 2);
  changed("field 'layers' changed");
  EXPECT_TRUE(seen.finds(keeper->layers[1]->weight));
  keeper->layers[1]->weight.requires_grad_(false);
  changed("'layers[1].weight'.requires_grad() was true");
  keeper->layers[0]->eval();
  changed("'layers[0]' was in training mode");
  keeper->layers[1] = torch::nn::Linear(2, 2);
  changed("field 'layers' changed");
  keeper->heads["a"] = Listed();
  changed("field 'heads' changed");
  keeper->heads["a"]->scales.push_back(1);
  changed("field 'heads.scales' changed");
  keeper->heads["a"]->gain = 3;
  changed("'heads': field at bytes");
  keeper->pair[1] = std::make_shared<torch::nn::LinearImpl>(2, 2);
  changed("field 'pair' changed");
  keeper->maybe = Parent();
  changed("field 'maybe' changed");
  keeper->maybe.value()->child->scales[0] = 5;
  changed("field 'maybe.child.scales' changed");
  keeper->any = torch::nn::AnyModule(torch::nn::Dropout(0.5));
  changed("field 'any' changed");
  keeper->any.ptr()->eval();
  changed("'any' was in training mode");
  keeper->base = std::make_shared<ListedImpl>(); // Known as what it is.
  changed("field 'base' changed");
  keeper->base->eval();
  changed("'base' was in training mode");
  // What is gone is not looked at.
  keeper->layers.clear();
  keeper->heads.clear();
  changed("field 'layers' changed");
}

TEST(FieldsTest, ModulesInVariablesOfAFunction) {
  std::vector<torch::nn::Linear> layers{
      torch::nn::Linear(2, 2), torch::nn::Linear(2, 2)};
  const auto plain = [&](Tensor x) {
    for (auto& layer : layers) {
      x = layer(x);
    }
    return x;
  };
  const auto f = temper::compile(plain, layers);
  const torch::NoGradGuard no_grad;
  const auto x = torch::ones({1, 2});
  const auto check = [&] {
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(f(x).equal(plain(x))) << f.explain();
    }
  };
  check();
  layers.pop_back();
  check();
  layers[0]->weight = torch::ones({2, 2});
  check();
  EXPECT_EQ(f.counters().traces, 3) << f.explain();
  EXPECT_EQ(f.counters().program_calls, 6) << f.explain();
}

TEST(FieldsTest, UnregisteredModulesTrain) {
  torch::manual_seed(3);
  Keeper keeper;
  keeper->layers = {torch::nn::Linear(3, 3), torch::nn::Linear(3, 3)};
  keeper->compile();
  const auto& weight = keeper->layers[0]->weight;
  for (int step = 0; step < 6; ++step) {
    const auto x = torch::rand({2, 3});
    weight.mutable_grad() = Tensor();
    keeper(x).sum().backward();
    const Tensor got = weight.grad();
    weight.mutable_grad() = Tensor();
    keeper->forward(x).sum().backward();
    EXPECT_TRUE(got.equal(weight.grad()));
    const torch::NoGradGuard no_grad;
    weight.sub_(got, 0.1);
  }
  EXPECT_EQ(temper::counters_of(keeper).program_backwards, 5)
      << temper::explain(keeper);
}

// A type of which nothing was said before the first call.
struct LateImpl : temper::Module<LateImpl> {
  double gain = 3.0;
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x * gain;
  }
};
struct OpenImpl : temper::Module<OpenImpl> {
  std::shared_ptr<torch::nn::Module> part;
  void reset() override {}
  Tensor forward(const Tensor& x) {
    auto* const late = part == nullptr ? nullptr : part->as<LateImpl>();
    return late == nullptr ? x : late->forward(x);
  }
};

TEST(FieldsTest, ATypeFirstMetAfterTheFirstCallIsKnown) {
  const auto open = std::make_shared<OpenImpl>();
  open->compile();
  const auto x = torch::ones({2});
  (*open)(x);
  // As its base, through LibTorch: by the pointer alone it could be anything.
  open->part = std::make_shared<LateImpl>();
  static_cast<torch::nn::Module&>(*open).register_module("part", open->part);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE((*open)(x).equal(x * 3)) << open->explain();
  }
  open->part->as<LateImpl>()->gain = 4;
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE((*open)(x).equal(x * 4)) << open->explain();
  }
  const auto counters = temper::counters_of(*open);
  EXPECT_EQ(counters.traces, 3) << open->explain();
  EXPECT_EQ(counters.program_calls, 4) << open->explain();
}

// The member is a reference: what it refers to is watched.
struct RefersImpl : torch::nn::Module {
  const std::vector<double>& scales;
  explicit RefersImpl(const std::vector<double>& all) : scales(all) {}
  TEMPER_FIELDS(scales)
};

TEST(FieldsTest, ReferencesAreWatchedByContent) {
  temper::know_modules<RefersImpl>();
  std::vector<double> scales{2.0};
  RefersImpl module(scales);
  Seen seen(module);
  EXPECT_EQ(seen.unguardable(), "");
  scales[0] = 3;
  EXPECT_FALSE(seen.matches());
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
