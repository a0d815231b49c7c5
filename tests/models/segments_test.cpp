// A net whose gradients are more than what one segment of a backward hands over
// (1 MiB): the chain of a call has several nodes, and the engine runs what lies
// behind each before the next.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/compare.h"
#include "support/segments.h"

namespace temper::testing {
namespace {

using torch::Tensor;
using torch::autograd::grad;
using torch::autograd::Node;

constexpr int kLayers = 4;

/// Each weight is 1 MiB, so each layer is a segment.
struct WideImpl : temper::Module<WideImpl> {
  std::vector<torch::nn::Linear> layers;

  WideImpl() {
    reset();
  }
  void reset() override {
    layers.clear();
    for (int i = 0; i < kLayers; ++i) {
      layers.push_back(register_module(
          "layer" + std::to_string(i), torch::nn::Linear(512, 512)));
    }
  }
  Tensor forward(Tensor x) {
    for (auto& layer : layers) {
      x = torch::tanh(layer(x));
    }
    return x;
  }
  const Tensor& weight(size_t i) {
    return layers[i]->weight;
  }
  TEMPER_FIELDS(layers)
};
TEMPER_MODULE(Wide);

/// The nodes behind the one result of a compiled call.
int segments_of(const Tensor& result) {
  std::set<Node*> seen;
  std::vector<Node*> stack{result.grad_fn().get()};
  while (!stack.empty()) {
    auto* node = stack.back();
    stack.pop_back();
    if (node == nullptr || node->name() != "TemperBackward" ||
        !seen.insert(node).second) {
      continue;
    }
    for (const auto& edge : node->next_edges()) {
      stack.push_back(edge.function.get());
    }
  }
  return static_cast<int>(seen.size()) - 1;
}

/// `with_short` where TEMPER_TEST_BUCKET_BYTES makes each gradient a segment.
void expect_segments(const Trial& run, const Tensor& y, int n, int with_short) {
  if (run.compiled() && !disabled()) {
    EXPECT_EQ(segments_of(y), has_short_segments() ? with_short : n);
  }
}

/// Which parameters have a gradient, a character each.
std::string having_grad(const Wide& net) {
  std::string result;
  for (const Tensor& p : net->parameters()) {
    result += p.grad().defined() ? '+' : '-';
  }
  return result;
}

/// Notes when the gradient of a parameter comes, and which others are there.
void watch_order(Wide& net, std::string& order) {
  for (const auto& entry : net->named_parameters()) {
    const std::string name = entry.key();
    entry.value().register_hook([&order, &net, name](const Tensor&) {
      order += name + ' ' + having_grad(net) + '\n';
    });
  }
}

Tensor input() {
  return torch::randn({3, 512});
}

TEST(Segments, GradientsAndHooksComeInEagersOrder) {
  const auto report = expect_same([](Trial& run) {
    Wide net;
    run.compile(net);
    std::string order;
    watch_order(net, order);
    for (int i = 0; i < 4; ++i) {
      net->zero_grad();
      order.clear();
      auto x = input().requires_grad_();
      x.register_hook([&](const Tensor&) { order += "x"; });
      // The gradients of two batches are added up.
      for (int part = 0; part < 2; ++part) {
        auto y = net(x);
        if (i > 0) {
          expect_segments(run, y, kLayers, 2 * kLayers);
        }
        y.square().mean().backward();
      }
      run.note("order", order);
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && program_calls == 7 &&
          program_backwards == 7);
}

TEST(Segments, RetainedTwiceAndNotAThirdTime) {
  const auto report = expect_same([](Trial& run) {
    Wide net;
    run.compile(net);
    for (int i = 0; i < 4; ++i) {
      net->zero_grad();
      auto loss = net(input()).square().mean();
      loss.backward({}, /*retain_graph=*/true);
      run.note_grad("weight", net->weight(0));
      loss.backward();
      run.attempt("third", [&] { loss.backward(); });
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 3);
  EXPECT_COUNTERS(report.total, program_backwards == 6);
}

// Backwards of a part: the chain is gone through to the last node that any
// gradient asked for lies behind.
TEST(Segments, GradientsOfOneLayer) {
  for (const size_t layer : {size_t{0}, size_t{1}, size_t{kLayers - 1}}) {
    const auto report = expect_same([&](Trial& run) {
      Wide net;
      run.compile(net);
      for (int i = 0; i < 4; ++i) {
        auto y = net(input());
        if (i > 0) {
          expect_segments(run, y, 1, 1);
        }
        run.note("grad", grad({y.square().mean()}, {net->weight(layer)}));
      }
      run.note_module("net", *net); // Has no gradients.
    });
    EXPECT_COUNTERS(
        report.total,
        eager == 0 && traces == 1 && program_calls == 3 &&
            program_backwards == 3);
  }
}

// Kinds of backward with 4, 2 and 1 segments go through one chain.
TEST(Segments, KindsOfDifferentLength) {
  const auto report = expect_same([](Trial& run) {
    Wide net;
    run.compile(net);
    std::string order;
    watch_order(net, order);
    const auto round = [&] {
      net->zero_grad();
      order.clear();
      net(input()).square().mean().backward();
      run.note("order", order);
      run.note_module("net", *net);
      auto y = net(input());
      run.note(
          "first and last",
          grad({y.square().mean()}, {net->weight(0), net->weight(3)}));
      run.note("last", grad({net(input()).square().mean()}, {net->weight(3)}));
    };
    for (int i = 0; i < 6; ++i) {
      if (i == 4) {
        run.steady();
      }
      round();
    }
  });
  EXPECT_COUNTERS(
      report.steady,
      program_calls == 6 && program_backwards == 6 && traces == 0 &&
          eager == 0);
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"a backward of a kind not seen before", 2}});
}

TEST(Segments, AFrozenLayerBetween) {
  const auto report = expect_same([](Trial& run) {
    Wide net;
    run.compile(net);
    for (const Tensor& p : net->layers[2]->parameters()) {
      p.set_requires_grad(false);
    }
    std::string order;
    for (const size_t layer : {0, 1, 3}) {
      net->weight(layer).register_hook(
          [&order, &net](const Tensor&) { order += having_grad(net) + '\n'; });
    }
    for (int i = 0; i < 4; ++i) {
      net->zero_grad();
      order.clear();
      auto y = net(input());
      if (i > 0) {
        expect_segments(run, y, kLayers - 1, 2 * (kLayers - 1));
      }
      y.square().mean().backward();
      run.note("order", order);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && program_calls == 3 &&
          program_backwards == 3);
}

// What a hook in the middle throws leaves the gradients behind that came before
// it, and the following backwards are right.
TEST(Segments, AHookThrowsInTheMiddle) {
  for (const bool retain : {false, true}) {
    const auto report = expect_same([&](Trial& run) {
      Wide net;
      run.compile(net);
      bool fails = false;
      net->weight(1).register_hook(
          [&](const Tensor&) { TORCH_CHECK(!fails, "not now"); });
      std::string order;
      watch_order(net, order);
      for (int i = 0; i < 7; ++i) {
        net->zero_grad();
        order.clear();
        auto loss = net(input()).square().mean();
        // Not while the backward is recorded: that would be recorded again.
        fails = i == 3 || i == 5;
        run.attempt(
            "backward", [&] { loss.backward({}, /*retain_graph=*/retain); });
        run.note("order", order);
        run.note_module("net", *net);
        if (fails) {
          // Of the same graph, which says that it is gone, or is retained.
          fails = false;
          run.attempt("again", [&] { loss.backward(); });
          run.note_module("net", *net);
        }
      }
    });
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 1 && program_calls == 6);
    EXPECT_COUNTERS(report.total, program_backwards == (retain ? 8 : 6));
  }
}

// A weight that a hook changes before its layer's turn comes is noticed there,
// as in eager.
TEST(Segments, AHookChangesALaterWeight) {
  const auto report = expect_same([](Trial& run) {
    Wide net;
    run.compile(net);
    bool changes = false;
    net->weight(3).register_hook([&](const Tensor&) {
      if (changes) {
        const torch::NoGradGuard no_grad;
        net->weight(1).mul_(2);
      }
    });
    for (int i = 0; i < 6; ++i) {
      net->zero_grad();
      changes = i == 3;
      auto loss = net(input()).square().mean();
      std::string thrown;
      try {
        loss.backward();
      } catch (const c10::Error& error) {
        // It goes on with the name of the node, which is another one.
        thrown = error.what_without_backtrace();
        thrown = thrown.substr(0, thrown.find('['));
      }
      run.note("thrown", thrown);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && program_calls == 5 &&
          program_backwards == 5);
}

// The optimizer's step is part of the backward: a weight moves as soon as its
// gradient is there, while earlier layers still wait for theirs.
TEST(Segments, StepsInsideTheBackward) {
  struct Step : torch::autograd::PostAccumulateGradHook {
    void operator()(const torch::autograd::Variable& p) override {
      const torch::NoGradGuard no_grad;
      auto parameter = p;
      parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().reset();
    }
  };
  const auto report = expect_same([](Trial& run) {
    Wide net;
    run.compile(net);
    for (const Tensor& p : net->parameters()) {
      torch::autograd::impl::set_post_acc_grad_hooks(
          p, std::make_unique<Step>());
    }
    for (int i = 0; i < 5; ++i) {
      auto y = net(input());
      y.square().mean().backward();
      run.note("y", y);
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      eager == 0 && traces == 1 && program_calls == 4 &&
          program_backwards == 4);
}

} // namespace
} // namespace temper::testing
