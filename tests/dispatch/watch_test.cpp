// What a Watch sees of modules and their tensors, and what it does not mind.
#include "dispatch/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <sstream>

#include "dispatch/known_modules.h"
#include "dispatch/watch_state.h"

namespace temper::dispatch {
namespace {

using testing::HasSubstr;
using torch::nn::Linear;

// As temper::Module does.
template <typename Impl>
void know() {
  record_module_type(
      typeid(Impl), {sizeof(Impl), detail::padding_of<Impl>(), nullptr});
}

struct BlockImpl : torch::nn::Module {
  Linear fc{nullptr};
  double gain = 1.0;
  int64_t count = 0;
  bool flag = false;
  torch::Tensor mask;

  BlockImpl() {
    fc = register_module("fc", Linear(4, 4));
  }
};

struct NetImpl : torch::nn::Module {
  bool early = false; // In the padding behind Module's own members.
  std::vector<std::shared_ptr<BlockImpl>> blocks;
  torch::Tensor scale;
  torch::nn::Dropout dropout{nullptr};

  NetImpl() {
    know<NetImpl>();
    know<BlockImpl>();
    for (int i = 0; i < 3; ++i) {
      auto block = std::make_shared<BlockImpl>();
      blocks.push_back(
          register_module("block" + std::to_string(i), std::move(block)));
    }
    scale = register_buffer("scale", torch::ones({4}));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
  }
  torch::Tensor forward(torch::Tensor x) {
    for (const auto& block : blocks) {
      x = block->fc(x) * block->gain;
    }
    return dropout(x * scale);
  }
};

class WatchTest : public testing::Test {
 protected:
  WatchTest() {
    torch::manual_seed(0);
    watch.add_module(*net);
    then = watch.take();
  }
  // Something has changed, in these words.
  void expect_change(const std::string& text) {
    EXPECT_FALSE(watch.matches(*then));
    EXPECT_THAT(watch.difference(*then), HasSubstr(text));
  }
  void expect_same() {
    EXPECT_TRUE(watch.matches(*then)) << watch.difference(*then);
    EXPECT_EQ(watch.difference(*then), "");
  }

  std::shared_ptr<NetImpl> net = std::make_shared<NetImpl>();
  Watch watch;
  std::shared_ptr<const Snapshot> then;
};

TEST_F(WatchTest, UnchangedStateMatches) {
  EXPECT_EQ(then->unguardable(), "");
  expect_same();
}

TEST_F(WatchTest, TrainingChangesNothing) {
  torch::optim::AdamW optimizer(net->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad(/*set_to_none=*/step == 0);
    net->forward(torch::randn({2, 4})).sum().backward();
    optimizer.step();
    expect_same();
  }
  (void)net->named_parameters();
  (void)net->name();
  std::ostringstream file;
  torch::save(net, file);
  expect_same();
}

TEST_F(WatchTest, WritingWeightsChangesNothing) {
  torch::Tensor& weight = net->blocks[0]->fc->weight;
  weight.data().copy_(torch::zeros({4, 4}));
  std::memset(weight.data_ptr(), 1, 4);
  {
    torch::NoGradGuard guard;
    weight.add_(1);
  }
  expect_same();
}

TEST_F(WatchTest, PlainFieldsAreSeenByValue) {
  net->blocks[1]->gain = 2.0;
  expect_change("'block1': field at bytes");
  EXPECT_THAT(watch.difference(*then), HasSubstr("as a double 2"));
  net->blocks[1]->gain = 1.0;
  expect_same();
  net->blocks[2]->count = 7;
  expect_change("from 0 to 7");
  net->blocks[2]->count = 0;
  net->blocks[2]->flag = true;
  expect_change("'block2': field");
}

TEST_F(WatchTest, FieldsInThePaddingOfModuleAreSeen) {
  ASSERT_LT(
      reinterpret_cast<std::byte*>(&net->early),
      reinterpret_cast<std::byte*>(net.get()) + sizeof(torch::nn::Module));
  net->early = true;
  expect_change("'NetImpl': field at bytes");
}

TEST_F(WatchTest, TrainingModeIsSeenAtEachModule) {
  net->eval();
  expect_change("'NetImpl' was in training mode");
  net->train();
  expect_same();
  net->dropout->eval();
  expect_change("'dropout' was in training mode");
}

TEST_F(WatchTest, OptionsOfLibTorchsModulesAreSeen) {
  net->dropout->options.p(0.25);
  expect_change("'dropout': field");
}

TEST_F(WatchTest, FreezingIsSeenAndUndone) {
  torch::Tensor& weight = net->blocks[0]->fc->weight;
  for (int i = 0; i < 20; ++i) {
    weight.set_requires_grad(false);
    expect_change("'block0.fc.weight'.requires_grad() was true, now false");
    weight.set_requires_grad(true);
    expect_same();
  }
}

TEST_F(WatchTest, DtypesThereAndBackMatch) {
  net->to(torch::kBFloat16);
  expect_change("'scale'.dtype() was Float, now BFloat16");
  net->to(torch::kFloat);
  expect_same();
  net->to(torch::kDouble);
  expect_change(".dtype() was Float, now Double");
}

TEST_F(WatchTest, ADeviceIsSeen) {
  net->scale.unsafeGetTensorImpl()->shallow_copy_from(
      torch::empty({4}, torch::kMeta).getIntrusivePtr());
  expect_change("'scale'.device() was cpu, now meta");
}

TEST_F(WatchTest, SetDataMatchesIfMetadataDoes) {
  torch::Tensor& weight = net->blocks[0]->fc->weight;
  weight.set_data(torch::zeros({4, 4}));
  expect_same();
  weight.set_data(torch::zeros({4, 4}).t());
  expect_change("'block0.fc.weight'.stride(0) was 4, now 1");
  weight.set_data(torch::zeros({4, 5}).narrow(1, 0, 4));
  expect_change(".stride(0) was 4, now 5");
  weight.set_data(torch::zeros({32}).narrow(0, 16, 16).view({4, 4}));
  expect_change(".storage_offset() was 0, now 16");
  weight.set_data(torch::zeros({2, 4}));
  expect_change(".size(0) was 4, now 2");
  weight.set_data(torch::zeros({16}));
  expect_change(".dim() was 2, now 1");
}

TEST_F(WatchTest, SetDataThatTiesTwoTensorsIsSeen) {
  torch::Tensor& a = net->blocks[0]->fc->weight;
  torch::Tensor& b = net->blocks[1]->fc->weight;
  a.set_data(torch::zeros({4, 4}));
  b.set_data(torch::zeros({4, 4}));
  expect_same();
  b.set_data(a.data());
  expect_change("'block1.fc.weight' and 'block0.fc.weight' share memory now");
  const auto tied = watch.take();
  EXPECT_TRUE(watch.matches(*tied));
  b.set_data(torch::zeros({4, 4}));
  EXPECT_FALSE(watch.matches(*tied));
  EXPECT_THAT(watch.difference(*tied), HasSubstr("no longer share memory"));
  expect_same();
}

TEST_F(WatchTest, AReplacedParameterIsSeen) {
  net->blocks[0]->fc->weight = torch::zeros({4, 4}, torch::requires_grad());
  expect_change("'block0.fc': field at bytes");
}

TEST_F(WatchTest, AReplacedDictionaryEntryIsSeen) {
  // In place: the dictionary's memory stays where it is.
  struct Opened : torch::nn::Module {
    using torch::nn::Module::parameters_;
  };
  Opened module;
  module.register_parameter("w", torch::zeros({2}));
  Watch own;
  know<Opened>();
  own.add_module(module);
  const auto before = own.take();
  EXPECT_TRUE(own.matches(*before));
  module.parameters_["w"] = torch::zeros({2}, torch::requires_grad());
  EXPECT_FALSE(own.matches(*before));
  EXPECT_EQ(own.difference(*before), "'w' is another tensor");
}

TEST_F(WatchTest, AReplacedChildIsSeen) {
  // Nothing but the dictionary's entry changes.
  net->replace_module("dropout", torch::nn::Dropout(0.5));
  expect_change("'dropout' is another module");
}

TEST_F(WatchTest, RegistrationsAreSeen) {
  net->register_buffer("more", torch::zeros({1}));
  expect_change("'NetImpl': buffers were added or removed");
  then = watch.take();
  EXPECT_TRUE(then->find(net->named_buffers()["more"]).has_value());
  net->register_parameter("p", torch::zeros({1}));
  expect_change("'NetImpl': parameters were added or removed");
  then = watch.take();
  net->register_module("child", Linear(2, 2));
  expect_change("'NetImpl': submodules were added or removed");
  then = watch.take();
  expect_same(); // The tree is walked anew.
  EXPECT_TRUE(then->find(net->named_parameters()["child.weight"]).has_value());
}

TEST_F(WatchTest, TensorFieldsAreSeenByIdentityAndMetadata) {
  net->blocks[0]->mask = torch::ones({3});
  expect_change("'block0': field at bytes");
  then = watch.take();
  EXPECT_EQ(then->unguardable(), "");
  const auto place = then->find(net->blocks[0]->mask);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->role, graph::Role::kField);
  EXPECT_THAT(place->path, HasSubstr("of 'block0'"));
  net->blocks[0]->mask.add_(1);
  expect_same();
  net->blocks[0]->mask.resize_({4});
  expect_change(".size(0) was 3, now 4");
  then = watch.take();
  net->blocks[0]->mask = net->blocks[0]->mask.clone();
  expect_change("'block0': field at bytes");
}

TEST_F(WatchTest, AStateTensorWithHistoryIsSeen) {
  torch::Tensor& mask = net->blocks[0]->mask;
  mask = torch::ones({3}, torch::requires_grad());
  then = watch.take();
  mask.set_requires_grad(false);
  mask.mul_(torch::ones({3}, torch::requires_grad()));
  EXPECT_FALSE(mask.is_leaf());
  expect_change("has a grad_fn: was false, now true");
}

TEST_F(WatchTest, InferenceAndConjugationAreSeen) {
  const auto seen = [&](const torch::Tensor& was, const torch::Tensor& is) {
    // set_data keeps identity and takes over the keys.
    net->blocks[0]->mask = was;
    then = watch.take();
    net->blocks[0]->mask.unsafeGetTensorImpl()->shallow_copy_from(
        is.getIntrusivePtr());
  };
  seen(
      torch::zeros({2}, torch::kComplexFloat),
      torch::zeros({2}, torch::kComplexFloat).conj());
  expect_change("dispatch keys");
  seen(torch::zeros({2}), torch::zeros({2})._neg_view());
  expect_change("dispatch keys");
  torch::Tensor inference;
  {
    c10::InferenceMode mode;
    inference = torch::zeros({2});
  }
  seen(torch::zeros({2}), inference);
  expect_change("is_inference() was false, now true");
}

TEST_F(WatchTest, ATensorAtAFreedAddressIsAnotherOne) {
  torch::Tensor& mask = net->blocks[0]->mask;
  mask = torch::ones({3});
  then = watch.take();
  const void* const old = mask.unsafeGetTensorImpl();
  for (int i = 0; i < 1000; ++i) {
    mask = torch::Tensor();
    mask = torch::ones({3});
    ASSERT_NE(mask.unsafeGetTensorImpl(), old);
    ASSERT_FALSE(watch.matches(*then));
  }
  // The memory of the old one went all the same.
  EXPECT_EQ(then->tensors().size(), 7u);
}

TEST_F(WatchTest, TheAddressOfAStorageIsHeldButNotItsMemory) {
  torch::Tensor& weight = net->blocks[0]->fc->weight;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(
          weight.storage().unsafeGetStorageImpl()));
  // All strong ones count as one; the snapshot's and the one here.
  EXPECT_EQ(storage.weak_use_count(), 3u);
  weight.set_data(torch::zeros({4, 4}));
  EXPECT_TRUE(storage.expired());
  EXPECT_TRUE(State::of(*then).has_moved());
  then.reset();
  EXPECT_EQ(storage.weak_use_count(), 1u);
}

TEST_F(WatchTest, ASnapshotKeepsNoMemory) {
  const auto tensor = torch::ones({3});
  net->blocks[0]->mask = tensor;
  then = watch.take();
  EXPECT_EQ(tensor.use_count(), 2u);
  EXPECT_EQ(tensor.storage().use_count(), 1u);
  net.reset();
}

TEST_F(WatchTest, TensorsAreListedOnceWithRoleAndPath) {
  net->blocks[1]->fc->weight = net->blocks[0]->fc->weight;
  net->blocks[0]->mask = net->scale;
  then = watch.take();
  const auto tensors = then->tensors();
  // 3 × (weight, bias), the buffer, and the field that the dictionary of
  // block1.fc doesn't have: it is block0's.
  EXPECT_EQ(tensors.size(), 7u);
  const auto place = then->find(net->scale);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(place->role, graph::Role::kBuffer);
  EXPECT_EQ(place->path, "scale");
  EXPECT_EQ(then->find(net->blocks[2]->fc->bias)->path, "block2.fc.bias");
  EXPECT_EQ(
      then->find(net->blocks[2]->fc->bias)->role, graph::Role::kParameter);
  EXPECT_FALSE(then->find(torch::ones({4})).has_value());
  EXPECT_FALSE(then->find(torch::Tensor()).has_value());
}

TEST_F(WatchTest, ATensorIsFoundByItsMemory) {
  torch::Tensor& weight = net->blocks[1]->fc->weight;
  EXPECT_FALSE(then->find(weight.data()).has_value());
  const auto found = then->find_memory(weight.data());
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(found->first.is_same(weight));
  EXPECT_EQ(found->second.path, "block1.fc.weight");
  EXPECT_EQ(found->second.role, graph::Role::kParameter);
  EXPECT_TRUE(
      then->find_memory(net->scale.detach())->first.is_same(net->scale));
  // It must look at the memory in the same way.
  const auto data = weight.data();
  EXPECT_FALSE(then->find_memory(data[0]).has_value());
  EXPECT_FALSE(then->find_memory(data.t()).has_value());
  EXPECT_FALSE(then->find_memory(data.view({16})).has_value());
  EXPECT_FALSE(then->find_memory(data.view(torch::kInt)).has_value());
  EXPECT_FALSE(then->find_memory(data.slice(0, 1).slice(0, 0, 3)).has_value());
  EXPECT_FALSE(then->find_memory(data._neg_view()).has_value());
  EXPECT_FALSE(then->find_memory(data.clone()).has_value());
  EXPECT_FALSE(then->find_memory(torch::empty({0})).has_value());
  // Of two that share it, each is found in its own way.
  net->blocks[0]->mask = net->scale.view({2, 2});
  then = watch.take();
  EXPECT_EQ(then->find_memory(net->scale.data())->second.path, "scale");
  EXPECT_TRUE(then->find_memory(net->blocks[0]->mask.data())
                  ->first.is_same(net->blocks[0]->mask));
  // One that is gone is not given back.
  const auto mask = net->blocks[0]->mask.data();
  net->blocks[0]->mask = torch::Tensor();
  EXPECT_FALSE(then->find_memory(mask).has_value());
}

TEST_F(WatchTest, ASharedChildIsWatchedOnce) {
  net->register_module("again", net->blocks[0]);
  then = watch.take();
  expect_same();
  net->blocks[0]->gain = 3;
  expect_change("'block0': field");
}

TEST_F(WatchTest, ASubclassIsNotTakenForItsBase) {
  struct MyLinear : torch::nn::LinearImpl {
    MyLinear() : LinearImpl(4, 4) {}
    double extra = 1;
  };
  net->register_module("mine", std::make_shared<MyLinear>());
  then = watch.take();
  EXPECT_THAT(then->unguardable(), HasSubstr("'mine' (MyLinear)"));
  EXPECT_THAT(then->unguardable(), HasSubstr("derive it from temper::Module"));
}

TEST_F(WatchTest, ASizeIsRecordedForTheExactTypeOnly) {
  struct Base : torch::nn::Module {
    double gain = 1;
  };
  struct Derived : Base {
    double extra = 1;
  };
  const auto module = std::make_shared<Derived>();
  know<Base>();
  EXPECT_EQ(module_type(*module), nullptr);
  EXPECT_EQ(module_type(Base())->size, sizeof(Base));
  know<Derived>();
  EXPECT_EQ(module_type(*module)->size, sizeof(Derived));
  net->register_module("derived", module);
  then = watch.take();
  EXPECT_EQ(then->unguardable(), "");
  module->extra = 2;
  expect_change("'derived': field");
}

TEST_F(WatchTest, ASparseBufferIsNotGuardable) {
  net->register_buffer("adjacency", torch::eye(3).to_sparse());
  then = watch.take();
  EXPECT_THAT(then->unguardable(), HasSubstr("'adjacency' is a tensor that"));
}

TEST_F(WatchTest, TwoInstancesOfOneTypeDoNotMatchEachOther) {
  const auto other = std::make_shared<NetImpl>();
  Watch both;
  both.add_module(*net);
  both.add_module(*other);
  const auto before = both.take();
  EXPECT_EQ(before->tensors().size(), 14u);
  EXPECT_EQ(before->find(other->scale)->path, "NetImpl.scale");
  other->blocks[0]->gain = 2;
  EXPECT_FALSE(both.matches(*before));
  expect_same();
}

TEST(Watch, CoversLibTorchsModules) {
  using namespace torch::nn;
  Sequential all(
      Linear(2, 2),
      Conv2d(1, 1, 1),
      ConvTranspose1d(1, 1, 1),
      BatchNorm2d(2),
      InstanceNorm1d(2),
      LayerNorm(LayerNormOptions({2, 3})),
      GroupNorm(1, 2),
      Embedding(3, 2),
      EmbeddingBag(3, 2),
      GELU(),
      Softmax(-1),
      PReLU(),
      Flatten(),
      MaxPool2d(2),
      Upsample(UpsampleOptions().scale_factor(std::vector<double>({2.0}))),
      GRU(2, 2),
      LSTM(LSTMOptions(2, 2).num_layers(2).bidirectional(true)),
      MultiheadAttention(2, 1),
      TransformerEncoderLayer(2, 1),
      Transformer(TransformerOptions(2, 1, 1, 1)),
      Functional(torch::relu),
      CrossEntropyLoss(CrossEntropyLossOptions().weight(torch::ones({2}))),
      AdaptiveLogSoftmaxWithLoss(16, 6, std::vector<int64_t>{2, 4}));
  ModuleDict dict(std::vector<std::pair<std::string, std::shared_ptr<Module>>>{
      {"linear", Linear(1, 1).ptr()}});
  ModuleList modules(Linear(1, 1), Identity());
  ParameterList list(torch::ones({2}));
  Watch watch;
  watch.add_module(*all);
  watch.add_module(*dict);
  watch.add_module(*modules);
  watch.add_module(*list);
  const auto then = watch.take();
  EXPECT_EQ(then->unguardable(), "");
  EXPECT_TRUE(watch.matches(*then)) << watch.difference(*then);
  for (const auto& module : all->modules()) {
    EXPECT_NE(module_type(*module), nullptr) << module->name();
  }
  for (const auto& parameter : all->parameters()) {
    EXPECT_TRUE(then->find(parameter).has_value());
  }
}

TEST(Watch, RunningStatisticsAndRecurrentStepsChangeNothing) {
  torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 4));
  torch::nn::LSTM lstm(4, 4);
  Watch watch;
  watch.add_module(*net);
  watch.add_module(*lstm);
  const auto then = watch.take();
  net->forward(torch::randn({8, 4})).sum().backward();
  lstm->forward(torch::randn({2, 3, 4}));
  EXPECT_TRUE(watch.matches(*then)) << watch.difference(*then);
  lstm->flatten_parameters();
  EXPECT_TRUE(watch.matches(*then)) << watch.difference(*then);
}

} // namespace
} // namespace temper::dispatch
