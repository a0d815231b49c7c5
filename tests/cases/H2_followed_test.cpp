// Cases H2 to H13 where calls are compiled and go on to be: state that is
// declared and changes, functions that are swapped, a script child, what is
// destroyed before its backward.
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;

/// Grows its containers in the call.
struct CacheImpl : temper::Module<CacheImpl> {
  std::vector<Tensor> seen;
  std::map<std::string, Tensor> named;
  bool grows = true;

  void reset() override {}
  Tensor forward(Tensor x) {
    if (grows) {
      seen.push_back(x * 1);
      named[std::to_string(seen.size() % 3)] = x + 1;
    }
    auto y = torch::stack(seen).sum(0) + x;
    for (const auto& [name, tensor] : named) {
      y = y + tensor;
    }
    return y;
  }
  TEMPER_FIELDS(seen, named)
};
TEMPER_MODULE(Cache);

TEST(CasesH, H2_DeclaredContainersThatGrow) {
  const auto report = expect_same([](Trial& run) {
    Cache net;
    run.compile(net);
    for (int i = 0; i < 12; ++i) {
      net->grows = i < 5;
      if (i == 8) {
        net->seen.push_back(torch::ones({3}));
        run.steady();
      }
      run.note("y", net(torch::randn({3})));
      run.note("seen", net->seen);
    }
  });
  EXPECT_COUNTERS(report.steady, eager == 0 && traces == 1);
  EXPECT_COUNTERS(report.steady, program_calls == 3);
  EXPECT_COUNTERS(
      report.total,
      eager == 2 &&
          because("the call changes watched state: field 'seen' changed"));
  EXPECT_COUNTERS(report.total, traces == 5 && program_calls == 5);
}

struct MaskedImpl : temper::Module<MaskedImpl> {
  nn::Linear fc{nullptr};
  Tensor mask;

  MaskedImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 4));
  }
  Tensor forward(Tensor x) {
    if (!mask.defined()) {
      mask = torch::arange(4).to(torch::kFloat);
    }
    return fc(x) * mask;
  }
};
TEMPER_MODULE(Masked);

TEST(CasesH, H3_MaskMadeOnce) {
  const auto report = expect_same([](Trial& run) {
    Masked net;
    run.compile(net);
    for (int i = 0; i < 6; ++i) {
      if (i == 2) {
        run.steady();
      }
      auto y = net(torch::randn({2, 4}));
      run.note("y", y);
      run.note("mask", net->mask);
      y.sum().backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.steady, program_calls == 4 && program_backwards == 4);
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2);
}

// Calls a function that uses `holder`, training what it holds.
template <class Holder, class Swap>
void train_swapped(Trial& run, Holder& holder, const Swap& swap) {
  auto f = run.compile_function(
      [&holder](Tensor x) { return holder->forward(x) * 2; }, holder);
  for (int i = 0; i < 12; ++i) {
    if (i % 4 == 0) {
      swap(i / 4);
    }
    auto y = f(torch::randn({2, 3}));
    run.note("y", y);
    y.sum().backward();
    run.note_module("net", *holder);
  }
}

TEST(CasesH, H4_NamedHolderAssigned) {
  const auto report = expect_same([](Trial& run) {
    const std::vector<nn::Linear> models{nn::Linear(3, 3), nn::Linear(3, 4)};
    nn::Linear net = models[0];
    train_swapped(run, net, [&](int k) { net = models[k % 2]; });
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2);
  EXPECT_COUNTERS(report.total, program_calls == 10 && program_backwards == 10);
}

TEST(CasesH, H4_NamedSharedPointerAssigned) {
  const auto report = expect_same([](Trial& run) {
    const auto one = std::make_shared<nn::LinearImpl>(3, 3);
    auto net = one;
    train_swapped(run, net, [&](int k) {
      net = k % 2 == 0 ? one : std::make_shared<nn::LinearImpl>(3, 3);
    });
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2);
  EXPECT_COUNTERS(report.total, graphs == 1 && program_calls == 10);
}

TEST(CasesH, H4_NamedHolderOfAnotherStructure) {
  const auto report = expect_same([](Trial& run) {
    nn::Sequential net(nn::Linear(3, 3));
    const auto f = [&net](const Tensor& x) { return net->forward(x); };
    auto compiled = run.compile_function(f, net);
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 12; ++i) {
      if (i == 4) {
        net = nn::Sequential(nn::Linear(3, 3), nn::ReLU());
      } else if (i == 8) {
        net->push_back(nn::Linear(3, 2));
      }
      run.note("y", compiled(torch::randn({2, 3})));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 3);
  EXPECT_COUNTERS(report.total, program_calls == 9);
}

TEST(CasesH, H4_NamedHolderFilledByTheFirstCall) {
  const auto report = expect_same([](Trial& run) {
    nn::Linear net{nullptr};
    auto f = run.compile_function(
        [&net](Tensor x) {
          if (!net) {
            net = nn::Linear(3, 3);
          }
          return net->forward(x);
        },
        net);
    for (int i = 0; i < 6; ++i) {
      if (i == 2) {
        run.steady();
      }
      auto y = f(torch::randn({2, 3}));
      run.note("y", y);
      y.sum().backward();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(report.steady, program_calls == 4 && program_backwards == 4);
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2);
}

TEST(CasesH, H4_ANamedHolderLetsGoOfWhatItHeld) {
  nn::Linear net(3, 3);
  const std::weak_ptr<nn::LinearImpl> first = net.ptr();
  const auto f =
      temper::compile([&net](Tensor x) { return net->forward(x); }, net);
  const torch::NoGradGuard no_grad;
  for (int i = 0; i < 3; ++i) {
    f(torch::randn({2, 3}));
  }
  net = nn::Linear(3, 3);
  EXPECT_TRUE(disabled() || first.expired()); // Held until the first call.
  for (int i = 0; i < 3; ++i) {
    const auto x = torch::randn({2, 3});
    EXPECT_TRUE(f(x).equal(net->forward(x)));
  }
  EXPECT_COUNTERS(
      f.counters(),
      eager == 0 && traces == 2 && admissions == 2 && program_calls == 4);
}

TEST(CasesH, H4_ModelsThatComeAndGoFillNoTable) {
  const auto report = expect_same([](Trial& run) {
    nn::Linear net(3, 3);
    auto f =
        run.compile_function([&net](Tensor x) { return net->forward(x); }, net);
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 300; ++i) {
      net = nn::Linear(3, 3);
      run.note("y", f(torch::ones({2, 3})));
    }
    run.steady();
    for (int i = 0; i < 3; ++i) {
      run.note("y", f(torch::ones({2, 3})));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 300);
  EXPECT_COUNTERS(report.steady, program_calls == 3);
}

Tensor in_their_order(
    const std::unordered_map<std::string, Tensor>& parts,
    Tensor x) {
  double factor = 1;
  for (const auto& [name, tensor] : parts) {
    x = x * factor + tensor;
    factor += 1;
  }
  return x;
}

TEST(CasesH, H2_UnorderedMapInAnotherOrder) {
  const auto report = expect_same([](Trial& run) {
    std::unordered_map<std::string, Tensor> parts;
    parts["a"] = torch::ones({2});
    parts["b"] = torch::full({2}, 3.0);
    auto state = run.compile_function(
        [&](Tensor x) { return in_their_order(parts, x); }, parts);
    auto argument = run.compile_function(
        [](Tensor x, const std::unordered_map<std::string, Tensor>& map) {
          return in_their_order(map, x);
        });
    for (int i = 0; i < 12; ++i) {
      if (i % 4 == 0) { // Comes in front.
        const std::string name = i == 4 ? "a" : "b";
        auto node = parts.extract(name);
        parts.insert(std::move(node));
      }
      run.note("first", parts.begin()->first);
      run.note("state", state(torch::ones({2})));
      run.note("argument", argument(torch::ones({2}), parts));
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 4);
  EXPECT_COUNTERS(report.total, program_calls == 20);
}

struct PointersImpl : temper::Module<PointersImpl> {
  std::function<Tensor(const Tensor&)> activation;
  Tensor (*pointer)(const Tensor&) = &torch::relu;

  PointersImpl() {
    reset();
  }
  void reset() override {
    activation = [](const Tensor& x) { return x.tanh(); };
  }
  Tensor forward(Tensor x) {
    return pointer(activation(x));
  }
};
TEMPER_MODULE(Pointers);

TEST(CasesH, H5_PointersSwappedWhileCompiled) {
  const auto report = expect_same([](Trial& run) {
    Pointers net;
    run.compile(net);
    const double shift = 0.25;
    for (int i = 0; i < 12; ++i) {
      if (i == 3) {
        net->activation = [](const Tensor& x) { return x.sigmoid(); };
      } else if (i == 6) {
        net->pointer = &torch::exp;
      } else if (i == 9) {
        net->activation = [shift](const Tensor& x) { return x + shift; };
      }
      auto x = torch::randn({2, 4}).requires_grad_();
      auto y = net(x);
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 4);
  EXPECT_COUNTERS(report.total, program_calls == 8 && program_backwards == 8);
}

TEST(CasesH, H12_DestroyedWithACompiledBackwardPending) {
  const auto report = expect_same([](Trial& run) {
    auto x = torch::randn({2, 4}).requires_grad_();
    std::vector<Tensor> weights;
    Tensor y;
    {
      TwoLayers net;
      if (run.compiled()) { // Not through the trial, which would keep it.
        net->compile();
      }
      for (int i = 0; i < 4; ++i) {
        net(x).sum().backward();
      }
      y = net(x); // Admitted, and its backward is known.
      weights = net->parameters();
    }
    y.sum().backward();
    run.note_grad("x", x);
    for (const auto& w : weights) {
      run.note_grad("w", w);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesH, H13_ScriptCaptured) {
  const auto report = expect_same([](Trial& run) {
    // Else TorchScript derives gradients by formulas of its own, which round
    // otherwise than those of its operators.
    const torch::jit::GraphOptimizerEnabledGuard no_optimizer(false);
    torch::jit::Module script("m");
    script.register_parameter("w", torch::full({4}, 0.5), false);
    script.define(R"(
      def forward(self, x):
          y = torch.relu(x * self.w + 1)
          return (y * torch.sigmoid(y)).sum(1)
    )");
    auto f = run.compile_function(
        [&script](Tensor x) { return script.forward({x}).toTensor() * 2; },
        script);
    for (int i = 0; i < 10; ++i) {
      auto x = torch::randn({i < 6 ? 3 : 2, 4}).requires_grad_();
      auto y = f(x);
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && traces == 2);
  EXPECT_COUNTERS(report.total, program_calls == 8 && program_backwards == 8);
}

// Calls a script with a list and a dict, which it may change.
Report call_with_containers(const std::string& body) {
  return expect_same([&](Trial& run) {
    const torch::jit::GraphOptimizerEnabledGuard no_optimizer(false);
    torch::jit::Module script("m");
    script.define(
        "def forward(self, x, l: List[Tensor], d: Dict[str, Tensor]):\n" +
        body);
    std::function<c10::IValue(std::vector<c10::IValue>)> f =
        [&](std::vector<c10::IValue> inputs) {
          return script.forward(std::move(inputs));
        };
    if (run.compiled()) {
      f = temper::compile(script);
    }
    for (int i = 0; i < 5; ++i) {
      c10::List<Tensor> list;
      list.push_back(torch::ones({2}));
      c10::Dict<std::string, Tensor> dict;
      dict.insert("a", torch::randn({2}));
      run.note("y", f({torch::randn({2}), list, dict}).toTensor());
      run.note("list", list.vec());
      run.note("size", static_cast<int64_t>(dict.size()));
      for (const auto& entry : dict) {
        run.note(entry.key(), entry.value());
      }
    }
  });
}

TEST(CasesH, H13_ScriptThatReadsItsListAndItsDict) {
  const auto report = call_with_containers("  return x * l[0] + d['a']\n");
  EXPECT_COUNTERS(report.total, eager == 0 && program_calls == 4);
}

TEST(CasesH, H13_ScriptThatChangesItsListOrItsDict) {
  for (const char* const change :
       {"l.append(x * 2)", "l[0] = x", "d['b'] = x", "d.clear()", "l.pop()"}) {
    const auto report =
        call_with_containers(std::string("  ") + change + "\n  return x + 1\n");
    SCOPED_TRACE(change);
    EXPECT_COUNTERS(
        report.total,
        reasons ==
            Reasons{
                {"the call changes a TorchScript list or dict that it was "
                 "given",
                 4}});
    EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
  }
}

struct Request {
  Tensor x;
  c10::IValue log;
};

TEST(CasesH, H13_ListsInsideArguments) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](const Request& request, Tensor y) {
      request.log.toTensorList().push_back(request.x);
      return request.x + y;
    });
    c10::List<Tensor> list;
    for (int i = 0; i < 4; ++i) {
      run.note("y", f(Request{torch::randn({2}), list}, torch::ones({2})));
      run.note("list", list.vec());
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"the call changes a TorchScript list or dict that it was given",
               3}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesC, C1_OverlapOfForeignMemory) {
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor y) {
      x *= 2;
      auto z = x + y;
      y.add_(z);
      return z - x;
    });
    for (int i = 0; i < 12; ++i) {
      std::vector<float> memory(8, 1.0F);
      std::vector<float> apart(4, 1.0F);
      auto x = torch::from_blob(memory.data(), {4});
      auto y = torch::from_blob(
          i % 4 < 2 ? apart.data() : memory.data() + (i % 4 - 1), {4});
      run.note("z", f(x, y));
      run.note("memory", torch::tensor(memory));
      run.note("apart", torch::tensor(apart));
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 3 && program_calls == 9);
}

} // namespace
} // namespace temper::testing
