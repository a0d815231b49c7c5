// Random operands and numbers for an operator, as its signature asks for.
//
// A letter for each operand and then for each number:
//   t any tensor          f floating point      i int64         b bool
//   q complex
//   M floating, 2 dims    3 floating, 3 dims    j int64, 1 dim
//   v floating, 1 dim, as long as the last dimension of operand 0
//   V, B the same of dimension 1; B wants no gradient, preferably a buffer
//   c broadcasts with operand 0                 s has its sizes and dtype
//   g int64 of as many dims
//   x a right operand of matmul    w a weight, u a bias of linear
//
//   d, e dims             k flag                r real          R positive real
//   p probability         y dtype               n 0 to 2        1 1 to 3
//   z a size of operand 0, read at run time
//   a, h start and length in dimension d
//   L, O, S dims, a permutation, sizes of a view: to the end
#pragma once

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "ops_reduce.h"

namespace temper::fuzz {

class Chooser {
 protected:
  explicit Chooser(uint64_t seed) : random_(seed) {}

  // Values from the engine only: distributions differ between libraries.
  int64_t below(int64_t n) {
    return n <= 0 ? 0
                  : static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
  }
  bool chance(int percent) {
    return below(100) < percent;
  }
  template <class T>
  T one_of(std::initializer_list<T> list) {
    return list.begin()[below(static_cast<int64_t>(list.size()))];
  }

  const Tensor& tensor(int reg) const {
    return registers_[static_cast<size_t>(reg)];
  }

  // A register for which `good` holds, or -1: one of the last ones rather, one
  // that nothing uses yet, or one that a gradient can go to.
  template <class Good>
  int pick(Good&& good) {
    std::vector<int> found;
    const auto count = static_cast<int>(registers_.size());
    for (int reg = 0; reg < count; ++reg) {
      if (tensor(reg).defined() && good(tensor(reg))) {
        int weight = 1;
        weight += reg + 4 >= count ? 3 : 0;
        weight += used_.contains(reg) ? 0 : 2;
        weight += tensor(reg).requires_grad() ? 3 : 0;
        found.insert(found.end(), static_cast<size_t>(weight), reg);
      }
    }
    return found.empty()
        ? -1
        : found[static_cast<size_t>(below(static_cast<int64_t>(found.size())))];
  }

  static bool broadcasts(const Tensor& a, const Tensor& b) {
    for (int64_t i = 1; i <= std::min(a.dim(), b.dim()); ++i) {
      if (a.size(-i) != b.size(-i) && a.size(-i) != 1 && b.size(-i) != 1) {
        return false;
      }
    }
    return true;
  }

  int operand(char letter, const std::vector<int>& before) {
    const auto floating = [](const Tensor& t) { return t.is_floating_point(); };
    const auto rank = [&](int64_t n) {
      return pick([&](const Tensor& t) { return floating(t) && t.dim() == n; });
    };
    const Tensor first = before.empty() ? Tensor() : tensor(before[0]);
    const auto vector = [&](int64_t dim) {
      return pick([&](const Tensor& t) {
        return floating(t) && t.dim() == 1 &&
            (!first.defined() ||
             (first.dim() > std::max<int64_t>(dim, 0) &&
              t.size(0) == first.size(dim)));
      });
    };
    switch (letter) {
      case 'f':
        return pick(floating);
      case 'i':
        return pick(
            [](const Tensor& t) { return t.scalar_type() == torch::kLong; });
      case 'b':
        return pick(
            [](const Tensor& t) { return t.scalar_type() == torch::kBool; });
      case 'q':
        return pick([](const Tensor& t) { return t.is_complex(); });
      case 'M':
        return rank(2);
      case '3':
        return rank(3);
      case 'v':
        return vector(-1);
      case 'V':
        return vector(1);
      case 'B':
        return pick([&](const Tensor& t) {
          return floating(t) && !t.requires_grad() && first.dim() > 1 &&
              t.dim() == 1 && t.size(0) == first.size(1) &&
              t.is_non_overlapping_and_dense() &&
              std::none_of(before.begin(), before.end(), [&](int reg) {
                   return tensor(reg).is_alias_of(t);
                 });
        });
      case 'j':
        return pick([](const Tensor& t) {
          return t.scalar_type() == torch::kLong && t.dim() == 1;
        });
      case 'g':
        return pick([&](const Tensor& t) {
          return t.scalar_type() == torch::kLong && t.dim() == first.dim();
        });
      case 's':
        return pick([&](const Tensor& t) {
          return t.sizes() == first.sizes() && t.dtype() == first.dtype();
        });
      case 'w':
        return pick([&](const Tensor& t) {
          return floating(t) && t.dim() == 2 && first.dim() > 0 &&
              t.size(1) == first.size(-1) && t.dtype() == first.dtype();
        });
      case 'u':
        return pick([&](const Tensor& t) {
          return floating(t) && t.dim() == 1 &&
              t.size(0) == tensor(before[1]).size(0);
        });
      case 'x':
        return pick([&](const Tensor& t) {
          return t.dim() > 0 && first.dim() > 0 &&
              t.size(t.dim() > 1 ? -2 : 0) == first.size(-1) &&
              t.dtype() == first.dtype();
        });
      case 'c':
        return chance(97) ? pick([&](const Tensor& t) {
          return !first.defined() || broadcasts(first, t);
        })
                          : pick([](const Tensor&) { return true; });
      default:
        return pick([](const Tensor&) { return true; });
    }
  }

  static Number integer(int64_t n) {
    Number number;
    number.integer = n;
    return number;
  }
  Number real(double x) {
    Number number;
    number.kind = chance(20) ? Number::Kind::kFactor : Number::Kind::kReal;
    number.real = x;
    return number;
  }
  Number size(int reg, int64_t dim, int64_t plus = 0) {
    Number number;
    number.kind = Number::Kind::kSize;
    number.reg = reg;
    number.dim = dim;
    number.integer = plus;
    return number;
  }

  void view_sizes(Instruction& now) {
    const Tensor& t = tensor(now.operands[0]);
    const auto s = [&](int64_t dim) {
      return chance(70) ? size(now.operands[0], dim) : integer(t.size(dim));
    };
    auto& numbers = now.numbers;
    switch (t.dim() < 2 ? below(2) : below(5)) {
      case 0:
        numbers.push_back(integer(-1));
        break;
      case 1:
        numbers.push_back(integer(1));
        numbers.push_back(integer(-1));
        break;
      case 2:
        numbers.push_back(s(0));
        numbers.push_back(integer(-1));
        break;
      case 3:
        numbers.push_back(integer(-1));
        numbers.push_back(s(t.dim() - 1));
        break;
      default:
        for (int64_t i = 0; i < t.dim(); ++i) {
          numbers.push_back(s(i));
        }
        numbers.push_back(integer(1));
        break;
    }
  }

  void add_number(char letter, Instruction& now, int64_t& dim) {
    const Tensor& t = tensor(now.operands[0]);
    auto& numbers = now.numbers;
    switch (letter) {
      case 'd':
      case 'e':
        dim = below(std::max<int64_t>(t.dim(), 1));
        numbers.push_back(integer(chance(30) ? dim - t.dim() : dim));
        break;
      case 'k':
        numbers.push_back(integer(below(2)));
        break;
      case 'r':
        numbers.push_back(real(one_of({-1.5, -0.5, 0.0, 0.5, 1.0, 2.0, 0.1})));
        break;
      case 'R':
        numbers.push_back(integer(1 + below(2)));
        break;
      case 'p':
        numbers.push_back(real(0.0));
        numbers.back().kind = Number::Kind::kReal;
        numbers.back().real = one_of({0.1, 0.5, 0.5, 0.0, 1.0});
        break;
      case 'y':
        numbers.push_back(integer(static_cast<int64_t>(one_of(
            {torch::kFloat,
             torch::kFloat,
             torch::kDouble,
             torch::kBFloat16,
             torch::kComplexFloat,
             torch::kLong,
             torch::kInt,
             torch::kBool}))));
        break;
      case '1':
        numbers.push_back(integer(1 + below(3)));
        break;
      case 'n':
        numbers.push_back(integer(below(3)));
        break;
      case 'z':
        if (t.dim() > 0) {
          numbers.push_back(size(now.operands[0], below(t.dim())));
        } else {
          numbers.push_back(integer(2));
        }
        break;
      case 'a':
        start_ = t.dim() > 0 ? below(t.size(dim)) : 0;
        numbers.push_back(integer(start_));
        break;
      case 'h':
        numbers.push_back(
            t.dim() > 0 && chance(40)
                ? size(now.operands[0], dim, -start_)
                : integer(t.dim() > 0 ? 1 + below(t.size(dim) - start_) : 1));
        break;
      case 'L':
        for (int64_t i = 0; i < t.dim(); ++i) {
          if (chance(50)) {
            numbers.push_back(integer(i));
          }
        }
        break;
      case 'O': {
        std::vector<int64_t> order(static_cast<size_t>(t.dim()));
        std::iota(order.begin(), order.end(), 0);
        for (size_t i = order.size(); i > 1; --i) {
          std::swap(
              order[i - 1],
              order[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
        }
        for (const int64_t i : order) {
          numbers.push_back(integer(i));
        }
        break;
      }
      default: // 'S'
        view_sizes(now);
        break;
    }
  }

  // False if there are no operands for it.
  bool fill(Instruction& now) {
    int64_t dim = 0;
    for (const char letter : std::string_view(all_ops()[now.op].signature)) {
      constexpr std::string_view kOperands = "tfibqM3jvVBcsgxwu";
      const bool is_operand = kOperands.find(letter) != std::string_view::npos;
      if (is_operand) {
        const int reg = operand(letter, now.operands);
        if (reg < 0) {
          return false;
        }
        now.operands.push_back(reg);
      } else {
        add_number(letter, now, dim);
      }
    }
    return true;
  }

  size_t any_op() {
    static const int64_t total = [] {
      int64_t sum = 0;
      for (const OpDef& op : all_ops()) {
        sum += op.weight;
      }
      return sum;
    }();
    int64_t at = below(total);
    size_t op = 0;
    while (at >= all_ops()[op].weight) {
      at -= all_ops()[op++].weight;
    }
    return op;
  }

  std::mt19937_64 random_;
  Tensors registers_; ///< What the program made so far.
  std::set<int> used_; ///< Registers that are operands.

 private:
  int64_t start_ = 0;
};

} // namespace temper::fuzz
