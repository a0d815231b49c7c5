// What TEMPER_LOG prints: of each topic a scenario, and every line of it,
// whole.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using testing::ElementsAre;
using testing::MatchesRegex;
using torch::Tensor;

// The lines of one topic while `code` runs.
std::vector<std::string> lines_of(
    const char* topic,
    const std::function<void()>& code) {
  const temper::base::LogCapture log;
  temper::base::set_log_topics(topic);
  code();
  temper::base::set_log_topics("");
  return log.lines();
}

constexpr const char* kMilliseconds = "[0-9]+(\\.[0-9]+)?(e-[0-9]+)? ms";

/// Has a field, a child and a graph that no other test compiles.
struct LoggedImpl : temper::Module<LoggedImpl> {
  torch::nn::Linear fc{nullptr};
  int64_t count = 2;
  bool branches = false;

  LoggedImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(4, 4));
  }
  Tensor forward(const Tensor& x) {
    const auto y = fc(x).asinh();
    return branches ? y.cosh() : y.acosh() * count;
  }
};
TEMPER_MODULE(Logged);

TEST(LogTest, Trace) {
  Logged net;
  net->compile();
  const auto lines = lines_of("trace", [&] {
    for (int i = 0; i < 3; ++i) {
      net(torch::rand({2, 4})).sum().backward();
    }
    const torch::NoGradGuard no_grad;
    net(torch::rand({2, 4}));
  });
  // The transposed weight, addmm, asinh, acosh and the product.
  EXPECT_THAT(
      lines,
      ElementsAre(
          MatchesRegex(
              std::string("temper: 'Logged' was traced: 5 operators in ") +
              kMilliseconds),
          MatchesRegex(
              "temper: 'Logged': its backward was recorded: [1-9][0-9]* operators"),
          MatchesRegex(
              std::string("temper: 'Logged' was traced: 5 operators in ") +
              kMilliseconds)));
}

int turns = 0; // No guard sees it.

TEST(LogTest, Shadow) {
  turns = 0;
  const auto x = torch::rand({3});
  auto f = temper::compile([](const Tensor& t) {
    return ++turns == 2 ? t.asinh() + 1 : t.asinh() + 3;
  });
  const auto lines = lines_of("shadow", [&] {
    for (int i = 0; i < 5; ++i) {
      f(x);
    }
  });
  EXPECT_THAT(
      lines,
      ElementsAre(
          MatchesRegex(
              "temper: '.*' diverged from its trace: aten::add.Scalar: "
              "a number differs \\(argument 'other'\\)"),
          MatchesRegex("temper: '.*' matched its trace: admitted")));
}

TEST(LogTest, ShadowNamesTheOperatorThatIsAnother) {
  turns = 0;
  const auto x = torch::rand({3});
  auto f = temper::compile([](const Tensor& t) {
    return ++turns == 2 ? t.asinh().cosh() : t.asinh().sinh();
  });
  const auto lines = lines_of("shadow", [&] {
    f(x);
    f(x);
  });
  EXPECT_THAT(
      lines,
      ElementsAre(MatchesRegex(
          "temper: '.*' diverged from its trace: aten::cosh: the trace had "
          "aten::sinh")));
}

// The line for a call that differs by `change` from one before.
std::string guard_line(
    const std::function<void(Logged&, Tensor&)>& change,
    bool grad = false) {
  const torch::AutoGradMode mode(grad);
  Logged net;
  net->compile();
  auto x = torch::rand({2, 4});
  net(x);
  const auto lines = lines_of("guard", [&] {
    net(x); // Nothing is new.
    change(net, x);
    net(x);
    net(x);
  });
  EXPECT_EQ(lines.size(), 1U) << testing::PrintToString(lines);
  return lines.empty() ? "" : lines[0];
}

TEST(LogTest, GuardNamesWhatDiffersByPathWithBothValues) {
  const std::string start = "temper: 'Logged' has a new signature: ";
  EXPECT_EQ(
      guard_line([](Logged&, Tensor& x) {
        x = torch::rand({2, 3, 4});
      }),
      start + "argument 0.dim() was 2, now 3");
  EXPECT_EQ(
      guard_line([](Logged&, Tensor& x) {
        x = torch::rand({5, 4});
      }),
      start + "argument 0.size(0) was 2, now 5");
  EXPECT_EQ(
      guard_line([](Logged&, Tensor& x) {
        x = torch::rand({4, 2}).t();
      }),
      start + "argument 0.stride(0) was 4, now 1");
  EXPECT_EQ(
      guard_line([](Logged& net, Tensor& x) {
        net->to(torch::kDouble);
        x = x.to(torch::kDouble);
      }),
      start + "'fc.weight'.dtype() was Float, now Double");
  EXPECT_EQ(
      guard_line([](Logged&, Tensor& x) { x.requires_grad_(); }),
      start + "argument 0.requires_grad() was false, now true");
  EXPECT_EQ(
      guard_line(
          [](Logged& net, Tensor&) { net->fc->bias.requires_grad_(false); }),
      start + "'fc.bias'.requires_grad() was true, now false");
  EXPECT_EQ(
      guard_line([](Logged& net, Tensor&) { net->fc->eval(); }),
      start + "'fc' was in training mode, now in evaluation mode");
  EXPECT_EQ(
      guard_line([](Logged& net, Tensor&) { net->eval(); }),
      start + "'LoggedImpl' was in training mode, now in evaluation mode");
  EXPECT_THAT(
      guard_line([](Logged& net, Tensor&) { net->count = 5; }),
      MatchesRegex(
          start +
          "'LoggedImpl': field at bytes [0-9]+\\.\\.[0-9]+ changed from 2 \\(as a "
          "double [0-9.e-]+\\) to 5 \\(as a double [0-9.e-]+\\)"));
}

TEST(LogTest, GuardNamesAliasing) {
  const auto x = torch::rand({4});
  auto f = temper::compile(
      [](const Tensor& a, const Tensor& b) { return a.asinh() + b; });
  f(x, torch::rand({4}));
  const auto lines = lines_of("guard", [&] {
    f(x, x);
    f(x, x);
  });
  EXPECT_THAT(
      lines,
      ElementsAre(
          MatchesRegex("temper: '.*' has a new signature: argument 1 was "
                       "in a storage of its own, now the same tensor as "
                       "argument 0")));
}

TEST(LogTest, Graph) {
  Logged net;
  net->branches = true;
  net->compile();
  const auto lines = lines_of("graph", [&] {
    for (int i = 0; i < 3; ++i) {
      net(torch::rand({2, 4})).sum().backward();
    }
    Logged twin; // Has the same graph.
    twin->branches = true;
    twin->compile();
    twin(torch::rand({3, 4})).sum().backward();
  });
  const auto line = [](const std::string& what) {
    return MatchesRegex(
        "temper: " + what + " \\(" + kMilliseconds + "\\):\n.*cosh.*");
  };
  EXPECT_THAT(
      lines,
      ElementsAre(
          line("graph after functionalise"),
          line("graph after simplify"),
          line("forward after simplify"),
          line("forward after reinplace"),
          MatchesRegex("temper: backward segment after simplify .*sinh.*"),
          MatchesRegex("temper: backward segment after reinplace .*sinh.*")));
}

TEST(LogTest, Program) {
  auto f = temper::compile([](const Tensor& x) { return x.acosh().cosh(); });
  const auto lines = lines_of("program", [&] {
    for (int i = 0; i < 3; ++i) {
      f(torch::rand({3}, torch::requires_grad()) + 1).sum().backward();
    }
  });
  EXPECT_THAT(
      lines,
      ElementsAre(
          MatchesRegex("temper: forward:\n.*aten::acosh.*aten::cosh.*"),
          MatchesRegex("temper: backward segment:\n.*aten::sinh.*")));
}

TEST(LogTest, Eager) {
  const torch::NoGradGuard no_grad;
  Logged net;
  net->compile();
  auto reads = temper::compile(
      [](const Tensor& x) { return x * x.sum().item<double>(); });
  const auto x = torch::rand({2, 4});
  const auto lines = lines_of("eager", [&] {
    for (int i = 0; i < 3; ++i) {
      reads(x);
      net(x);
    }
  });
  EXPECT_THAT(
      lines,
      ElementsAre(MatchesRegex("temper: '.*' runs eagerly: data dependence: "
                               "aten::_local_scalar_dense")));
}

TEST(LogTest, EagerForAWhile) {
  auto f = temper::compile([](const Tensor& x) {
    torch::manual_seed(3); // As another thread may do.
    return x.acosh();
  });
  const auto lines = lines_of("eager", [&] {
    for (int i = 0; i < 4; ++i) {
      f(torch::rand({3}) + 1);
    }
  });
  // Traced are calls 1, 2 and 4.
  EXPECT_THAT(
      lines,
      ElementsAre(
          MatchesRegex("temper: '.*' is traced again: random numbers "
                       "were drawn or seeded outside of tensor ops"),
          MatchesRegex(
              "temper: '.*' is traced again after 1 calls: random numbers "
              "were drawn or seeded outside of tensor ops"),
          MatchesRegex(
              "temper: '.*' is traced again after 3 calls: random numbers "
              "were drawn or seeded outside of tensor ops")));
}

TEST(LogTest, Store) {
  const auto code = [](const Tensor& x) { return x.acosh().asinh().expm1(); };
  const auto x = torch::rand({3}) + 1;
  const auto lines = lines_of("store", [&] {
    for (int k = 0; k < 2; ++k) {
      auto f = temper::compile(code);
      for (int i = 0; i < 3; ++i) {
        f(x);
      }
    }
  });
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_THAT(
      lines[0],
      MatchesRegex(
          std::string(
              "temper: graph [0-9a-f]{32}/aten/accurate: compiled in ") +
          kMilliseconds));
  // The same graph.
  EXPECT_EQ(
      lines[1], lines[0].substr(0, lines[0].find("compiled in")) + "found");
}

TEST(LogTest, NoTopicsNoLines) {
  EXPECT_THAT(
      lines_of(
          "",
          [] {
            auto f = temper::compile(
                [](const Tensor& x) { return x * x.sum().item<double>(); });
            auto g = temper::compile(
                [](const Tensor& x) { return x.acosh().log10(); });
            for (int i = 0; i < 4; ++i) {
              f(torch::ones({2}));
              g(torch::ones({2 + i}));
            }
          }),
      ElementsAre());
}

} // namespace
