// Results of each kind come out of a program as they come out of the code.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "support/counters.h"
#include "support/mutants.h"
#include "temper/temper.h"

namespace {

using torch::Tensor;

// Of this whole program: scripts/check-mutants runs its equality tests.
[[maybe_unused]] const bool has_mutant = temper::testing::install_mutant();
namespace rnn = torch::nn::utils::rnn;

// What a result is made of, seen by other means than temper's own.
struct Parts {
  std::vector<Tensor> tensors;
  std::string rest;
};

// `make` makes a result of an argument, `take` takes it apart. Values and
// gradients are the code's own, and the program's but for the traced call.
template <class Make, class Take>
void expect_from_program(
    std::string_view kind,
    const Make& make,
    const Take& take) {
  SCOPED_TRACE(kind);
  torch::manual_seed(1);
  auto f = temper::compile(make);
  for (int i = 0; i < 4; ++i) {
    const auto data = torch::randn({2, 3});
    const auto run = [&](const auto& code) {
      const auto x = data.clone().requires_grad_();
      const Parts parts = take(code(x));
      Tensor loss = torch::zeros({});
      for (const auto& tensor : parts.tensors) {
        if (tensor.defined()) {
          loss = loss + tensor.sin().sum();
        }
      }
      loss.backward();
      return std::make_pair(parts, x.grad());
    };
    const auto [expected, expected_grad] = run(make);
    const auto [found, found_grad] = run(f);
    EXPECT_EQ(found.rest, expected.rest);
    ASSERT_EQ(found.tensors.size(), expected.tensors.size());
    for (size_t t = 0; t < found.tensors.size(); ++t) {
      ASSERT_EQ(found.tensors[t].defined(), expected.tensors[t].defined());
      EXPECT_TRUE(
          !found.tensors[t].defined() ||
          found.tensors[t].equal(expected.tensors[t]))
          << t;
    }
    EXPECT_TRUE(found_grad.equal(expected_grad));
  }
  EXPECT_COUNTERS(
      f.counters(),
      eager == 0 && traces == 1 && admissions == 1 && program_calls == 3 &&
          program_backwards == 3);
}

TEST(ResultKindsTest, Tuples) {
  expect_from_program(
      "tuple",
      [](const Tensor& x) {
        return std::make_tuple(x * 2, int64_t{7}, x.exp(), Tensor());
      },
      [](const auto& t) {
        return Parts{
            {std::get<0>(t), std::get<2>(t), std::get<3>(t)},
            std::to_string(std::get<1>(t))};
      });
  expect_from_program(
      "pair",
      [](const Tensor& x) {
        return std::make_pair(x.sin(), std::string("a text that is long"));
      },
      [](const auto& p) {
        return Parts{{p.first}, p.second};
      });
  expect_from_program(
      "array",
      [](const Tensor& x) {
        return std::array<Tensor, 2>{x.cos(), x * 3};
      },
      [](const auto& a) {
        return Parts{{a[0], a[1]}, ""};
      });
}

struct Output {
  Tensor logits;
  std::optional<Tensor> loss;
  std::vector<Tensor> hidden;
  double scale = 0;
};

struct Wrapped {
  Output output;
  std::string name;
};

TEST(ResultKindsTest, Structs) {
  expect_from_program(
      "struct",
      [](const Tensor& x) {
        const auto y = x.tanh();
        return Wrapped{{y, y.sum(), {x * 2, y}, 0.5}, "net"};
      },
      [](const Wrapped& w) {
        const auto& [logits, loss, hidden, scale] = w.output;
        return Parts{
            {logits, loss.value(), hidden.at(0), hidden.at(1)},
            w.name + std::to_string(scale) + std::to_string(hidden.size())};
      });
}

class Listed {
 public:
  Listed(Tensor x, std::string s) : x_(std::move(x)), s_(std::move(s)) {}
  const Tensor& x() const {
    return x_;
  }
  const std::string& s() const {
    return s_;
  }

 private:
  Tensor x_;
  std::string s_;
  TEMPER_FIELDS(x_, s_)
};

TEST(ResultKindsTest, ClassesThatListTheirMembers) {
  expect_from_program(
      "TEMPER_FIELDS",
      [](const Tensor& x) { return Listed(x.sigmoid(), "listed"); },
      [](const Listed& l) {
        return Parts{{l.x()}, l.s()};
      });
}

TEST(ResultKindsTest, OptionalsAndVariants) {
  expect_from_program(
      "optional",
      [](const Tensor& x) {
        return std::make_tuple(
            std::optional<Tensor>(x * 2),
            std::optional<Tensor>(),
            std::optional<int>(3));
      },
      [](const auto& t) {
        const auto& [full, empty, number] = t;
        return Parts{
            {full.value()},
            std::to_string(empty.has_value()) + std::to_string(*number)};
      });
  using Either = std::variant<double, Tensor, std::vector<Tensor>>;
  expect_from_program(
      "variant",
      [](const Tensor& x) {
        return std::vector<Either>{x.exp(), 0.25, std::vector<Tensor>{x * 5}};
      },
      [](const std::vector<Either>& v) {
        return Parts{
            {std::get<Tensor>(v.at(0)),
             std::get<std::vector<Tensor>>(v.at(2)).at(0)},
            std::to_string(std::get<double>(v.at(1)))};
      });
}

TEST(ResultKindsTest, Containers) {
  expect_from_program(
      "vector",
      [](const Tensor& x) {
        return std::vector<Tensor>{x * 2, x, x.exp()};
      },
      [](const std::vector<Tensor>& v) {
        return Parts{v, ""};
      });
  expect_from_program(
      "deque",
      [](const Tensor& x) {
        return std::deque<std::pair<int, Tensor>>{{1, x * 2}, {2, x.abs()}};
      },
      [](const auto& d) {
        return Parts{
            {d.at(0).second, d.at(1).second},
            std::to_string(d.at(0).first) + std::to_string(d.at(1).first)};
      });
  const auto walk = [](const auto& map) {
    Parts parts;
    for (const auto& [key, tensor] : map) {
      parts.tensors.push_back(tensor);
      parts.rest += key;
    }
    return parts;
  };
  using Map = std::map<std::string, Tensor>;
  expect_from_program(
      "map",
      [](const Tensor& x) {
        return Map{{"b", x * 2}, {"a", x.cos()}};
      },
      walk);
  expect_from_program(
      "unordered_map",
      [](const Tensor& x) {
        return std::unordered_map<std::string, Tensor>{
            {"b", x * 2}, {"a", x.cos()}, {"c", x.sin()}};
      },
      walk);
  expect_from_program(
      "multimap",
      [](const Tensor& x) {
        return std::multimap<std::string, Tensor>{{"a", x * 2}, {"a", x.cos()}};
      },
      walk);
  expect_from_program(
      "OrderedDict",
      [](const Tensor& x) {
        torch::OrderedDict<std::string, Tensor> dict;
        dict.insert("z", x * 2);
        dict.insert("a", x.relu());
        return dict;
      },
      [](const torch::OrderedDict<std::string, Tensor>& dict) {
        Parts parts;
        for (const auto& item : dict) {
          parts.tensors.push_back(item.value());
          parts.rest += item.key();
        }
        return parts;
      });
  expect_from_program(
      "set",
      [](const Tensor& x) {
        return std::make_pair(x * 2, std::set<std::string>{"b", "a"});
      },
      [](const auto& p) {
        Parts parts{{p.first}, ""};
        for (const auto& key : p.second) {
          parts.rest += key;
        }
        return parts;
      });
}

TEST(ResultKindsTest, ScriptValues) {
  expect_from_program(
      "IValue",
      [](const Tensor& x) {
        return c10::IValue(std::make_tuple(x * 2, 1.5, x.exp()));
      },
      [](const c10::IValue& value) {
        const auto& items = value.toTupleRef().elements();
        return Parts{
            {items[0].toTensor(), items[2].toTensor()},
            std::to_string(items[1].toDouble())};
      });
}

// The argument is one as well: how it was packed is known.
TEST(ResultKindsTest, PackedSequences) {
  const auto packed = rnn::pack_sequence(
      {torch::ones({3, 2}), torch::ones({5, 2})}, /*enforce_sorted=*/false);
  const auto of = [&packed](const Tensor& x) {
    return rnn::PackedSequence(
        x,
        packed.batch_sizes(),
        packed.sorted_indices(),
        packed.unsorted_indices());
  };
  const auto code = [](const rnn::PackedSequence& p) {
    return rnn::PackedSequence(
        p.data().sin(),
        p.batch_sizes(),
        p.sorted_indices(),
        p.unsorted_indices());
  };
  auto f = temper::compile(code);
  for (int i = 0; i < 4; ++i) {
    const auto x = torch::randn({8, 2}).requires_grad_();
    const auto y = f(of(x));
    EXPECT_TRUE(y.data().equal(x.sin()));
    EXPECT_TRUE(y.batch_sizes().is_same(packed.batch_sizes()));
    EXPECT_TRUE(y.unsorted_indices().is_same(packed.unsorted_indices()));
    y.data().sum().backward();
    EXPECT_TRUE(x.grad().equal(x.detach().cos()));
  }
  EXPECT_COUNTERS(
      f.counters(),
      eager == 0 && traces == 1 && admissions == 1 && program_calls == 3 &&
          program_backwards == 3);
}

} // namespace
