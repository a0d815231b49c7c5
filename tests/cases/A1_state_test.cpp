// Cases A1 to A7: state that changes after compile: grad mode, frozen layers,
// weights, their objects and dtypes, fields.
#include <gtest/gtest.h>

#include <sstream>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

void backward_step(Trial& run, TwoLayers& net, const torch::Tensor& x) {
  net->zero_grad();
  auto y = net(x);
  run.note("y", y);
  y.pow(2).sum().backward();
  run.note_module("net", *net);
}

void no_grad_call(Trial& run, TwoLayers& net, const torch::Tensor& x) {
  const torch::NoGradGuard no_grad;
  run.note("no grad", net(x));
}

struct PeekingImpl : temper::Module<PeekingImpl> {
  torch::Tensor weight, running;

  PeekingImpl() {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::randn({3}));
    running = register_buffer("running", torch::zeros({3}));
  }
  torch::Tensor forward(torch::Tensor x) {
    // Before any operator has met them.
    auto norm = weight.data().norm();
    running.detach().add_(x.detach());
    return x * weight / norm + running.data();
  }
};
TEMPER_MODULE(Peeking);

TEST(CasesA, A5_DataOfAParameterBeforeTheParameter) {
  const auto report = expect_same([](Trial& run) {
    Peeking net;
    run.compile(net);
    torch::optim::SGD steps(net->parameters(), 0.1);
    for (int i = 0; i < 6; ++i) {
      steps.zero_grad();
      auto y = net(torch::randn({3}));
      run.note("y", y);
      y.sum().backward();
      steps.step();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 5);
}

TEST(CasesA, A1_NoGradThenTraining) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    no_grad_call(run, net, x);
    for (int i = 0; i < 3; ++i) {
      backward_step(run, net, x);
    }
    no_grad_call(run, net, x);
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 3);
  EXPECT_COUNTERS(report.total, graphs <= 2 && program_backwards == 2);
}

TEST(CasesA, A1_ModesInTurn) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    auto leaf = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 5; ++i) {
      if (i == 3) {
        run.steady();
      }
      backward_step(run, net, x);
      no_grad_call(run, net, x);
      backward_step(run, net, leaf);
      run.note_grad("leaf", leaf);
      no_grad_call(run, net, leaf);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 3);
  EXPECT_COUNTERS(report.total, traces == 4 && program_calls == 16);
  EXPECT_COUNTERS(report.steady, traces == 0 && program_calls == calls);
  EXPECT_COUNTERS(report.steady, program_backwards == 4);
}

TEST(CasesA, A1_NeverDifferentiatedThenTraining) {
  // Grad mode, but no backward: later calls must still have one.
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({2, 4});
    for (int i = 0; i < 3; ++i) {
      run.note("y", net(x));
    }
    for (int i = 0; i < 4; ++i) {
      backward_step(run, net, x);
    }
  });
  // The first backward of a call that was compiled without one runs the code
  // again.
  EXPECT_COUNTERS(
      report.total,
      eager == 1 && because("a backward of a kind not seen before"));
  // Traced are the first call and one after that backward.
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 5);
  EXPECT_COUNTERS(report.total, program_backwards == 2);
}

void freeze(nn::Module& module, bool frozen) {
  for (auto& p : module.parameters()) {
    p.requires_grad_(!frozen);
  }
}

TEST(CasesA, A2_Unfreeze) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    freeze(*net->first, true);
    run.compile(net);
    auto x = torch::randn({3, 4});
    for (int i = 0; i < 3; ++i) {
      backward_step(run, net, x);
    }
    freeze(*net->first, false);
    for (int i = 0; i < 3; ++i) {
      backward_step(run, net, x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 4);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesA, A2_FreezeUnfreezeTwentyTimes) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    for (int i = 0; i < 40; ++i) {
      if (i == 8) {
        run.steady();
      }
      freeze(*net->first, i % 2 == 1);
      backward_step(run, net, x);
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.steady, traces == 0 && program_calls == calls);
  EXPECT_COUNTERS(report.steady, program_backwards == calls);
}

TEST(CasesA, A2_FreezeOneTensorAndAll) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({3, 4}).requires_grad_();
    for (int i = 0; i < 4; ++i) {
      net->second->bias.requires_grad_(i % 2 == 0);
      backward_step(run, net, x);
      freeze(*net, true);
      run.note("frozen", net(x.detach()));
      backward_step(run, net, x);
      run.note_grad("x", x);
      freeze(*net, false);
    }
  });
  // With and without that bias; all frozen, for the leaf and for its values.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 4 && program_calls == 8);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesA, A3_EqualBlocksOfWhichTheFirstHasNoGradBefore) {
  const auto report = expect_same([](Trial& run) {
    std::vector<NoisyNet> blocks;
    std::vector<nn::Linear> between;
    for (int i = 0; i < 6; ++i) {
      blocks.emplace_back();
      between.emplace_back(3, 4);
      run.compile(blocks.back());
    }
    for (int step = 0; step < 4; ++step) {
      auto x = torch::randn({5, 4});
      for (size_t i = 0; i < blocks.size(); ++i) {
        x = between[i](blocks[i](x));
      }
      x.pow(2).mean().backward();
      run.note("x", x);
      for (const auto& block : blocks) {
        run.note_module("block", *block);
      }
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.total, compiles == graphs);
  // Each block is a site of its own.
  EXPECT_COUNTERS(report.total, traces == 6 && program_calls == 18);
  EXPECT_COUNTERS(report.total, program_backwards == 18);
}

// Weights written in place between calls; no call is traced because of it.
void expect_follows(const std::function<void(TwoLayers&)>& write) {
  const auto report = expect_same([&](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({2, 4});
    const auto evaluate = [&] {
      net->eval();
      no_grad_call(run, net, x);
    };
    const auto train = [&] {
      net->train();
      backward_step(run, net, x);
    };
    for (int i = 0; i < 3; ++i) {
      evaluate();
      train();
    }
    run.steady();
    write(net);
    evaluate();
    write(net);
    train();
    evaluate();
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 2);
  EXPECT_COUNTERS(report.steady, traces == 0 && compiles == 0);
  EXPECT_COUNTERS(report.steady, program_calls == 3 && program_backwards == 1);
}

TEST(CasesA, A4_WeightsFromAnOptimizer) {
  expect_follows([](TwoLayers& net) {
    torch::optim::AdamW steps(net->parameters());
    for (auto& p : net->parameters()) {
      p.mutable_grad() = torch::ones_like(p);
    }
    steps.step();
  });
}

TEST(CasesA, A4_WeightsCopiedAndFilled) {
  expect_follows([](TwoLayers& net) {
    const torch::NoGradGuard no_grad;
    net->first->weight.copy_(torch::randn({5, 4}));
    net->second->bias.fill_(2.0);
    nn::init::xavier_uniform_(net->second->weight);
  });
}

TEST(CasesA, A4_WeightsOfAnotherModel) {
  expect_follows([](TwoLayers& net) {
    const torch::NoGradGuard no_grad;
    TwoLayers other;
    auto from = other->parameters();
    auto into = net->parameters();
    for (size_t i = 0; i < into.size(); ++i) {
      into[i].copy_(from[i]);
    }
  });
}

TEST(CasesA, A4_WeightsLoadedFromAnArchive) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({2, 4});
    // Both put other storages under the same parameters.
    for (int round = 0; round < 4; ++round) {
      if (round == 1) {
        run.steady();
      }
      TwoLayers trained;
      if (round % 2 == 1) {
        std::stringstream archive;
        torch::save(trained, archive);
        torch::load(net, archive);
      } else {
        torch::serialize::OutputArchive written;
        trained->save(written);
        std::stringstream stream;
        written.save_to(stream);
        torch::serialize::InputArchive read;
        read.load_from(stream);
        net->load(read);
      }
      for (int i = 0; i < 3; ++i) {
        no_grad_call(run, net, x);
        backward_step(run, net, x);
      }
    }
  });
  EXPECT_COUNTERS(report.steady, eager == 0 && traces == 0 && compiles == 0);
  EXPECT_COUNTERS(report.steady, program_calls == 18 && program_backwards == 9);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 22);
}

TEST(CasesA, A4_StateCopiedByName) {
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    const auto x = torch::randn({5, 4});
    for (int round = 0; round < 4; ++round) {
      if (round == 1) {
        run.steady();
      }
      NoisyNet trained;
      trained->norm->running_mean.fill_(round);
      {
        const torch::NoGradGuard no_grad;
        const auto parameters = trained->named_parameters();
        for (auto& entry : net->named_parameters()) {
          entry.value().copy_(parameters[entry.key()]);
        }
        const auto buffers = trained->named_buffers();
        for (auto& entry : net->named_buffers()) {
          entry.value().copy_(buffers[entry.key()]);
        }
      }
      for (int i = 0; i < 3; ++i) {
        net->zero_grad();
        auto y = net(x);
        run.note("y", y);
        y.pow(2).sum().backward();
        run.note_module("net", *net);
      }
    }
  });
  EXPECT_COUNTERS(report.steady, eager == 0 && traces == 0 && compiles == 0);
  EXPECT_COUNTERS(report.steady, program_calls == 9 && program_backwards == 9);
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 11);
}

/// A parameter of its own, used as a plain field.
struct ScaleImpl : temper::Module<ScaleImpl> {
  torch::Tensor weight;
  nn::Linear fc{nullptr};

  ScaleImpl() {
    reset();
  }
  void reset() override {
    weight = register_parameter("weight", torch::randn({4}));
    fc = register_module("fc", nn::Linear(4, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    return fc(x * weight);
  }
};
TEMPER_MODULE(Scale);

// Calls, replaces something, calls again; both with and without grad. In four
// rounds there are `states` that guards can tell from each other, of which the
// calls have `most_graphs`.
void expect_sees(
    const std::function<void(Trial&, Scale&)>& replace,
    int64_t states,
    int64_t most_graphs = 2) {
  const auto report = expect_same([&](Trial& run) {
    Scale net;
    run.compile(net);
    auto x = torch::randn({3, 4});
    for (int round = 0; round < 4; ++round) {
      for (int i = 0; i < 3; ++i) {
        net->zero_grad();
        auto y = net(x);
        run.note("y", y);
        y.sum().backward();
        run.note_grad("weight", net->weight);
        run.note_grad("fc.weight", net->fc->weight);
        const torch::NoGradGuard no_grad;
        run.note("no grad", net(x));
      }
      replace(run, net);
    }
  });
  EXPECT_COUNTERS(report.total, calls == 24 && eager == 0);
  EXPECT_COUNTERS(report.total, traces == 2 * states);
  EXPECT_COUNTERS(report.total, shadow_runs == traces && admissions == traces);
  EXPECT_COUNTERS(report.total, program_calls == 24 - 2 * states);
  EXPECT_COUNTERS(report.total, program_backwards == 12 - states);
  EXPECT_COUNTERS(report.total, graphs <= most_graphs);
}

TEST(CasesA, A5_FieldAssigned) {
  expect_sees(
      [](Trial&, Scale& net) {
        net->weight = torch::randn({4}).requires_grad_();
      },
      /*states=*/4);
}

TEST(CasesA, A5_FieldAssignedAndOldOneGone) {
  // The new tensor may come to lie where the old one was.
  expect_sees(
      [](Trial&, Scale& net) {
        net->weight = torch::Tensor();
        net->weight = torch::randn({4}).requires_grad_();
        net->fc->bias = torch::Tensor();
        net->fc->bias = torch::randn({2}).requires_grad_();
      },
      /*states=*/4);
}

TEST(CasesA, A5_SetData) {
  expect_sees(
      [](Trial& run, Scale& net) {
        net->weight.set_data(torch::randn({4}));
        net->fc->weight.set_data(torch::randn({2, 4}));
        run.note_module("net", *net);
      },
      /*states=*/1);
}

TEST(CasesA, A5_SetDataOfAnotherLayout) {
  expect_sees(
      [](Trial& run, Scale& net) {
        net->weight.set_data(torch::randn({8}).slice(0, 0, 8, 2));
        net->fc->weight.set_data(torch::randn({4, 2}).t());
        run.note_module("net", *net);
      },
      /*states=*/2,
      /*most_graphs=*/4);
}

TEST(CasesA, A5_SetDataOfAnotherDtype) {
  expect_sees(
      [](Trial& run, Scale& net) {
        const auto dtype = net->weight.scalar_type() == torch::kFloat
            ? torch::kDouble
            : torch::kFloat;
        for (auto& p : net->parameters()) {
          p.set_data(p.data().to(dtype) * 2);
        }
        run.note_module("net", *net);
      },
      /*states=*/2,
      /*most_graphs=*/4);
}

TEST(CasesA, A5_SetDataOfOtherSizes) {
  expect_sees(
      [](Trial& run, Scale& net) {
        const bool wide = net->weight.size(0) == 1;
        net->weight.set_data(torch::randn({wide ? 4 : 1}));
        net->fc->weight.set_data(torch::randn({wide ? 2 : 5, 4}));
        net->fc->bias.set_data(torch::randn({wide ? 2 : 5}));
        run.note_module("net", *net);
      },
      /*states=*/2,
      /*most_graphs=*/4);
}

TEST(CasesA, A5_ChildReplaced) {
  expect_sees(
      [](Trial& run, Scale& net) {
        net->fc = nn::Linear(
            net->replace_module("fc", std::make_shared<nn::LinearImpl>(4, 2)));
        run.note_module("net", *net);
      },
      /*states=*/4);
}

TEST(CasesA, A6_Dtypes) {
  const auto report = expect_same([](Trial& run) {
    NoisyNet net;
    run.compile(net);
    auto x = torch::randn({5, 4});
    for (const auto dtype :
         {torch::kFloat,
          torch::kBFloat16,
          torch::kFloat,
          torch::kDouble,
          torch::kBFloat16}) {
      net->to(dtype);
      for (int i = 0; i < 4; ++i) {
        net->zero_grad();
        auto y = net(x.to(dtype));
        run.note("y", y);
        y.pow(2).sum().backward();
        run.note_module("net", *net);
        run.note_generator();
        const torch::NoGradGuard no_grad;
        run.note("no grad", net(x.to(dtype)));
      }
    }
  });
  EXPECT_COUNTERS(report.total, eager == 0 && graphs <= 6);
  // With and without grad in three dtypes, each once.
  EXPECT_COUNTERS(report.total, traces == 6 && program_calls == 34);
  EXPECT_COUNTERS(report.total, program_backwards == 17);
}

TEST(CasesA, A6_HalfPrecision) {
  for (const auto dtype : {torch::kBFloat16, torch::kHalf}) {
    const auto report = expect_same([dtype](Trial& run) {
      NoisyNet net;
      run.compile(net);
      net->to(dtype);
      torch::optim::SGD steps(net->parameters(), 0.05);
      for (int i = 0; i < 8; ++i) {
        steps.zero_grad();
        auto x = torch::randn({5, 4}).to(dtype).requires_grad_();
        auto y = net(x);
        run.note("y", y);
        y.pow(2).sum().backward();
        steps.step();
        run.note_grad("x", x);
        run.note_module("net", *net);
        run.note_generator();
        net->eval();
        {
          const torch::NoGradGuard no_grad;
          run.note("no grad", net(x));
        }
        net->train();
      }
      net->to(torch::kFloat);
      for (int i = 0; i < 3; ++i) {
        net->zero_grad();
        auto y = net(torch::randn({5, 4}));
        run.note("y", y);
        y.pow(2).sum().backward();
        run.note_module("net", *net);
      }
    });
    EXPECT_COUNTERS(report.total, eager == 0 && traces == 3 && graphs <= 3);
    EXPECT_COUNTERS(
        report.total, program_calls == 16 && program_backwards == 9);
  }
}

TEST(CasesA, A6_InputOfAnotherDtypeRaises) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    auto x = torch::randn({2, 4});
    for (int i = 0; i < 3; ++i) {
      no_grad_call(run, net, x);
    }
    run.attempt("double", [&] { net(x.to(torch::kDouble)); });
    run.attempt("size", [&] { net(torch::randn({2, 3})); });
    no_grad_call(run, net, x);
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 3 && program_calls == 3);
}

/// Counts what it has seen, and uses the count.
struct CountingImpl : temper::Module<CountingImpl> {
  nn::Linear fc{nullptr};
  int64_t seen = 0;
  double mean_size = 0;

  CountingImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 2));
  }
  torch::Tensor forward(torch::Tensor x) {
    seen += x.size(0);
    mean_size = 0.5 * mean_size + 0.5 * static_cast<double>(x.size(0));
    return fc(x) / seen + mean_size;
  }
};
TEMPER_MODULE(Counting);

TEST(CasesA, A7_FieldCounts) {
  const auto report = expect_same([](Trial& run) {
    Counting net;
    run.compile(net);
    for (int i = 0; i < 12; ++i) {
      auto y = net(torch::randn({i % 3 == 0 ? 2 : 3, 4}));
      run.note("y", y);
      run.note("seen", net->seen);
      run.note("mean_size", net->mean_size);
      if (i % 2 == 0) {
        y.sum().backward();
        run.note_module("net", *net);
      }
    }
    // Set back by the user, as at the start of an epoch.
    net->seen = 0;
    const torch::NoGradGuard no_grad;
    for (int i = 0; i < 4; ++i) {
      run.note("y", net(torch::ones({2, 4})));
      run.note("seen", net->seen);
    }
  });
  // Each kind of call is traced less and less often.
  EXPECT_COUNTERS(report.total, eager == 6 && traces == 10 && graphs == 0);
  EXPECT_COUNTERS(
      report.total,
      because(
          "the call changes watched state: 'CountingImpl': field at bytes "));
  EXPECT_COUNTERS(report.total, program_calls == 0 && shadow_runs == 0);
}

} // namespace
} // namespace temper::testing
