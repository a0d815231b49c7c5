// Identity of tensors: objects, storages with geometry, what happens behind the
// dispatcher, dead objects.
#include "capture/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>
#include <unordered_set>

namespace temper::capture {
namespace {

using graph::kNoValue;
using graph::ValueId;
using Found = Ledger::Found;
using testing::ElementsAre;
using testing::IsEmpty;

class LedgerTest : public testing::Test {
 protected:
  int32_t storage(int32_t input = -1) {
    trace.storages.push_back({0, input, false});
    return static_cast<int32_t>(trace.storages.size()) - 1;
  }
  // A value that looks as `tensor` does now, in storage number `number`.
  ValueId value(const at::Tensor& tensor, int32_t number) {
    graph::Value added;
    added.storage = number;
    added.type.dtype = tensor.scalar_type();
    added.type.conj = tensor.is_conj();
    added.type.neg = tensor.is_neg();
    added.type.strides = tensor.strides().vec();
    for (const auto size : tensor.sizes()) {
      added.type.sizes.push_back({graph::Dim::Kind::kAny, -1, size});
    }
    trace.graph.values.push_back(added);
    trace.values.push_back({tensor.storage_offset(), number, tensor.key_set()});
    return static_cast<ValueId>(trace.graph.values.size()) - 1;
  }
  ValueId bind(const at::Tensor& tensor, int32_t number) {
    const auto id = value(tensor, number);
    ledger.bind(tensor, id);
    return id;
  }
  // The same of an object that has never been bound, as a shadow run does it.
  ValueId bind_new(const at::Tensor& tensor, int32_t number, bool new_storage) {
    const auto id = value(tensor, number);
    ledger.bind_new(tensor, id, new_storage);
    return id;
  }
  // `find` agrees with what the object alone says.
  ValueId find(const at::Tensor& tensor) {
    const auto found = ledger.find(tensor);
    EXPECT_EQ(found.found == Found::kKnown, found.value != kNoValue);
    const auto object = ledger.find_object(tensor);
    EXPECT_TRUE(object == kNoValue || object == found.value);
    for (size_t v = 0; v < trace.values.size(); ++v) {
      const auto id = static_cast<ValueId>(v);
      EXPECT_EQ(ledger.is_object(tensor, id), object == id) << v;
    }
    return found.value;
  }

  Trace trace;
  Ledger ledger{trace};
};

TEST_F(LedgerTest, AnObjectIsTheValueItWasBoundTo) {
  const auto x = torch::ones({2, 3});
  const auto y = torch::ones({2, 3});
  const auto vx = bind(x, storage());
  const auto vy = bind(y, storage());
  EXPECT_EQ(ledger.find_object(x), vx);
  EXPECT_EQ(find(x), vx);
  EXPECT_EQ(find(y), vy);
  EXPECT_EQ(ledger.find_storage(y), 1);
  const auto z = torch::ones({2, 3});
  EXPECT_EQ(find(z), kNoValue);
  EXPECT_EQ(ledger.find(z).found, Found::kUnknown);
  EXPECT_EQ(ledger.find_storage(z), -1);
}

TEST_F(LedgerTest, ShallowCopiesAreFoundByStorageAndGeometry) {
  const auto x = torch::ones({2, 3}).requires_grad_();
  const auto vx = bind(x, storage());
  for (const auto& copy : {x.detach(), x.data(), x.variable_data()}) {
    EXPECT_EQ(ledger.find_object(copy), kNoValue);
    EXPECT_EQ(find(copy), vx);
  }
}

TEST_F(LedgerTest, AnotherViewOfAKnownStorageIsForeign) {
  const auto x = torch::arange(12.F).view({3, 4});
  bind(x, storage());
  for (const auto& view :
       {x.t(),
        x.narrow(0, 1, 2),
        x.narrow(1, 0, 2),
        x.view({12}),
        x.view(torch::kInt),
        x.narrow(0, 0, 2)}) {
    EXPECT_EQ(ledger.find(view).found, Found::kForeignView);
    EXPECT_EQ(ledger.find_storage(view), 0);
  }
  const auto t = bind(x.t(), 0); // The object dies at once.
  EXPECT_EQ(find(x.t()), t);
}

TEST_F(LedgerTest, ConjugateAndNegativeBitsAreGeometry) {
  const auto x = torch::ones({3}, torch::kComplexFloat);
  const auto vx = bind(x, storage());
  EXPECT_EQ(ledger.find(x.conj()).found, Found::kForeignView);
  EXPECT_EQ(ledger.find(at::_neg_view(x)).found, Found::kForeignView);
  const auto conj = bind(x.conj(), 0);
  EXPECT_EQ(find(x.conj()), conj);
  EXPECT_EQ(find(x), vx);
}

TEST_F(LedgerTest, OfEqualViewsTheLatestIsMeant) {
  const auto x = torch::ones({4});
  const auto first = bind(x.view({4}), storage());
  const auto second = bind(x.view({4}), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(find(x.view({4})), second);
}

TEST_F(LedgerTest, ATensorChangedBehindTheDispatcherIsNotWhatItWas) {
  auto x = torch::ones({2, 3});
  const auto vx = bind(x, storage());
  const auto y = torch::zeros({2, 3});

  x.set_data(y); // Memory that nobody knows.
  EXPECT_EQ(find(x), kNoValue);
  EXPECT_EQ(ledger.find(x).found, Found::kUnknown);

  const auto vy = bind(y, storage());
  EXPECT_EQ(ledger.find_object(x), kNoValue);
  EXPECT_EQ(find(x), vy); // x is y's memory now.

  auto* impl = y.unsafeGetTensorImpl();
  impl->set_sizes_contiguous({3, 2});
  EXPECT_EQ(ledger.find(y).found, Found::kForeignView);
  impl->set_sizes_contiguous({2, 3});
  EXPECT_EQ(find(y), vy);
  EXPECT_NE(vx, vy);
}

TEST_F(LedgerTest, AnObjectMayBecomeAnotherValue) {
  const auto x = torch::ones({2, 3});
  const auto before = bind(x, storage());
  const auto same_look = x.view({2, 3});
  x.unsqueeze_(0);
  EXPECT_EQ(ledger.find(x).found, Found::kForeignView);
  const auto after = bind(x, 0);
  EXPECT_EQ(find(x), after);
  EXPECT_EQ(find(same_look), before);
  EXPECT_TRUE(ledger.object(after).is_same(x));
  EXPECT_THAT(ledger.alive_values(), ElementsAre(after));
}

TEST_F(LedgerTest, AStorageWithANewNumberForgetsItsValues) {
  const auto x = torch::ones({4});
  bind(x.view({2, 2}), storage());
  const auto vx = bind(x, storage());
  EXPECT_EQ(ledger.find_storage(x), 1);
  EXPECT_EQ(find(x), vx);
  EXPECT_EQ(ledger.find(x.view({2, 2})).found, Found::kForeignView);
  // An object of the old number is no longer what it was.
  const auto y = torch::ones({4});
  const auto vy = bind(y, storage());
  bind(y.view({2, 2}), storage());
  EXPECT_EQ(find(y), kNoValue);
  EXPECT_FALSE(ledger.is_object(y, vy));
}

TEST_F(LedgerTest, ANumberMayHaveSeveralStorages) {
  const auto number = storage();
  const auto x = torch::ones({4});
  const auto y = torch::ones({4});
  const auto vx = bind(x, number);
  const auto vy = bind(y, number);
  EXPECT_EQ(find(x), vx);
  EXPECT_EQ(find(y), vy);
  EXPECT_EQ(ledger.storage(number).get(), y.storage().unsafeGetStorageImpl());
}

// Frees tensors one by one, each before the next is made, and returns the
// addresses at which the later ones lay, of tensors and of storages.
std::unordered_set<const void*> addresses_of_freed(
    const std::function<void(const at::Tensor&)>& see) {
  std::unordered_set<const void*> seen;
  for (int i = 0; i < 200; ++i) {
    const auto tensor = torch::empty({4});
    see(tensor);
    seen.insert(tensor.unsafeGetTensorImpl());
    seen.insert(tensor.storage().unsafeGetStorageImpl());
  }
  return seen;
}

TEST_F(LedgerTest, AddressesOfDeadTensorsAreNotUsedAgain) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // Without a ledger they are: else this test would show nothing. (Sanitizers
  // keep freed memory back.)
  EXPECT_LT(addresses_of_freed([](const auto&) {}).size(), 200);
#endif
  const auto addresses = addresses_of_freed([&](const at::Tensor& tensor) {
    EXPECT_EQ(ledger.find(tensor).found, Found::kUnknown);
    bind(tensor, storage());
  });
  EXPECT_EQ(addresses.size(), 400);
}

TEST_F(LedgerTest, MemoryIsFreedThoughTheLedgerKnowsIt) {
  int freed = 0;
  std::vector<float> memory(4);
  {
    const auto x =
        torch::from_blob(memory.data(), {4}, [&](void*) { ++freed; });
    bind(x, storage());
    EXPECT_EQ(freed, 0);
  }
  EXPECT_EQ(freed, 1);
  EXPECT_FALSE(ledger.object(0).defined());
  EXPECT_FALSE(ledger.storage(0));
}

TEST_F(LedgerTest, AliveValuesAreOfLivingObjectsInMemoryThatNoInputBrought) {
  const auto argument = torch::ones({4});
  bind(argument, storage(/*input=*/0));
  const auto view = argument.view({2, 2});
  bind(view, 0);
  EXPECT_THAT(ledger.alive_values(), IsEmpty());
  const auto x = torch::ones({4});
  const auto vx = bind(x, storage());
  ledger.bind(x.detach(), vx); // Another object, dead at once.
  bind(torch::ones({4}), storage());
  EXPECT_THAT(ledger.alive_values(), ElementsAre(vx));
  const auto y = x.view({2, 2});
  const auto vy = bind(y, 1);
  EXPECT_THAT(ledger.alive_values(), ElementsAre(vx, vy));
}

TEST_F(LedgerTest, AnUnboundValueHasNoObjectAndNoStorage) {
  const auto x = torch::ones({4});
  const auto id = value(x, storage());
  EXPECT_FALSE(ledger.object(id).defined());
  EXPECT_FALSE(ledger.storage(0));
  EXPECT_FALSE(ledger.is_object(x, id));
  EXPECT_EQ(find(x), kNoValue);
}

// A thread uses one ledger's tables again for the next, not while it lives.
TEST_F(LedgerTest, ALedgerKnowsNothingOfThoseBefore) {
  const auto x = torch::ones({4});
  const auto id = bind(x, storage());
  {
    Ledger second{trace};
    EXPECT_EQ(second.find(x).found, Ledger::Found::kUnknown);
    EXPECT_FALSE(second.object(id).defined());
    second.bind(torch::ones({4}), id);
  }
  const Ledger third{trace};
  EXPECT_FALSE(third.object(id).defined());
  EXPECT_FALSE(third.storage(0));
  EXPECT_THAT(third.alive_values(), IsEmpty());
  EXPECT_EQ(find(x), id);
}

// Against a model that remembers every binding: what an object is, by the last
// one; what another tensor is, by the latest with its storage and look.
TEST_F(LedgerTest, RandomBindingsAreFoundAsTheModelSays) {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return random() % n; };
  std::vector<std::pair<at::Tensor, ValueId>> bound;
  std::vector<at::Tensor> bases;
  const auto look = [&](const at::Tensor& base) {
    switch (pick(4)) {
      case 0:
        return base.view({2, 6});
      case 1:
        return base.narrow(0, static_cast<int64_t>(pick(3)), 5);
      case 2:
        return base.view({3, 4}).t();
      default:
        return base.detach();
    }
  };
  for (int step = 0; step < 300; ++step) {
    if (bases.empty() || pick(4) == 0) {
      bases.push_back(torch::zeros({12}));
      const auto& base = bases.back();
      bound.emplace_back(
          base,
          pick(2) == 0 ? bind(base, storage())
                       : bind_new(base, storage(), /*new_storage=*/true));
    }
    const auto number = pick(bases.size());
    const auto tensor = look(bases[number]);
    if (pick(2) == 0) {
      const auto of = static_cast<int32_t>(number);
      bound.emplace_back(
          tensor,
          pick(2) == 0 ? bind(tensor, of)
                       : bind_new(tensor, of, /*new_storage=*/false));
    } else {
      ValueId expected = kNoValue;
      for (const auto& [earlier, id] : bound) {
        if (earlier.is_alias_of(tensor) && earlier.sizes() == tensor.sizes() &&
            earlier.strides() == tensor.strides() &&
            earlier.storage_offset() == tensor.storage_offset()) {
          expected = id;
        }
      }
      EXPECT_EQ(ledger.find(tensor).value, expected) << "step " << step;
    }
  }
  for (const auto& [tensor, id] : bound) {
    EXPECT_EQ(ledger.find_object(tensor), id);
    EXPECT_TRUE(ledger.is_object(tensor, id));
  }
}

} // namespace
} // namespace temper::capture
