// Neighbours of B: embeddings whose gradients are sparse or that write to their
// weight, and the optimizers of LibTorch.
#include <gtest/gtest.h>

#include <sstream>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace optim = torch::optim;

/// A table of words and a head, which may be the table itself.
struct TaggerImpl : temper::Module<TaggerImpl> {
  nn::EmbeddingOptions options;
  bool tied;
  nn::Embedding words{nullptr};
  nn::Linear head{nullptr};

  explicit TaggerImpl(const nn::EmbeddingOptions& options_, bool tied_ = false)
      : options(options_), tied(tied_) {
    reset();
  }
  void reset() override {
    words = register_module("words", nn::Embedding(options));
    head = register_module("head", nn::Linear(4, 3));
  }
  Tensor forward(Tensor tokens) {
    auto x = words(tokens);
    return tied ? x.matmul(words->weight.t()) : head(x);
  }
  TEMPER_IGNORE(options) // The children have what matters of them.
};
TEMPER_MODULE(Tagger);

/// Sums of a table's rows, by bags of any length, and a head.
struct BagsImpl : temper::Module<BagsImpl> {
  nn::EmbeddingBagOptions options;
  nn::EmbeddingBag bags{nullptr};
  nn::Linear head{nullptr};

  explicit BagsImpl(const nn::EmbeddingBagOptions& options_)
      : options(options_) {
    reset();
  }
  void reset() override {
    bags = register_module("bags", nn::EmbeddingBag(options));
    head = register_module("head", nn::Linear(4, 3));
  }
  Tensor forward(Tensor tokens, Tensor offsets) {
    return head(bags->forward(tokens, offsets));
  }
  TEMPER_IGNORE(options)
};
TEMPER_MODULE(Bags);

nn::EmbeddingOptions words() {
  return nn::EmbeddingOptions(7, 4);
}

void note_sparse(Trial& run, const std::string& name, const Tensor& gradient) {
  run.note(name, gradient);
  run.note(name + " is sparse", static_cast<int64_t>(gradient.is_sparse()));
  if (gradient.is_sparse()) {
    run.note(name + " indices", gradient._indices());
    run.note(name + " values", gradient._values());
    run.note(
        name + " coalesced", static_cast<int64_t>(gradient.is_coalesced()));
  }
}

// Six steps, of which the last two accumulate; and two evaluations.
template <class Net, class... Arguments>
void train_with_sgd(Trial& run, Net net, const Arguments&... arguments) {
  run.compile(net);
  optim::SGD sgd(net->parameters(), 0.1);
  for (int i = 0; i < 6; ++i) {
    if (i != 5) {
      sgd.zero_grad();
    }
    auto y = net(arguments...);
    run.note("y", y);
    y.pow(2).sum().backward();
    for (const auto& p : net->named_parameters()) {
      if (p.value().grad().defined()) {
        note_sparse(run, p.key(), p.value().grad());
      }
    }
    if (i != 4) {
      sgd.step();
    }
  }
  run.note_module("net", *net);
  const torch::NoGradGuard no_grad;
  net->eval();
  for (int i = 0; i < 3; ++i) {
    run.note("evaluation", net(arguments...));
  }
}

TEST(CasesB, Sparse_Embedding) {
  const auto report = expect_same([](Trial& run) {
    train_with_sgd(
        run,
        Tagger(words().sparse(true)),
        torch::randint(7, {2, 5}, torch::kLong));
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"aten::_sparse_coo_tensor_with_dims_and_tensors returns a "
               "tensor that is not strided (in its backward)",
               5}});
  // Evaluations are compiled all the same.
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 2);
}

TEST(CasesB, Sparse_EmbeddingThatIsTheHead) {
  // A sparse part and a dense one: the sum is dense. Sparse gradients leave the
  // padding out by a mask.
  const auto report = expect_same([](Trial& run) {
    train_with_sgd(
        run,
        Tagger(words().sparse(true).padding_idx(2), /*tied=*/true),
        torch::randint(7, {2, 5}, torch::kLong));
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"data dependence: aten::index.Tensor (in its backward)", 5}});
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 2);
}

TEST(CasesB, Sparse_EmbeddingBag) {
  for (const bool mean : {false, true}) {
    const auto report = expect_same([mean](Trial& run) {
      auto options = nn::EmbeddingBagOptions(7, 4).sparse(true);
      if (mean) {
        options.mode(torch::kMean);
      } else {
        options.mode(torch::kSum);
      }
      train_with_sgd(
          run,
          Bags(options),
          torch::randint(7, {9}, torch::kLong),
          torch::tensor({0, 2, 7}));
    });
    EXPECT_COUNTERS(
        report.total,
        reasons ==
            Reasons{
                {"aten::_embedding_bag_backward returns a tensor that is not "
                 "strided (in its backward)",
                 5}});
    EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 2);
  }
}

TEST(CasesB, Sparse_FrozenEmbedding) {
  // Nothing is sparse then.
  const auto report = expect_same([](Trial& run) {
    Tagger net(words().sparse(true));
    net->words->weight.set_requires_grad(false);
    train_with_sgd(run, net, torch::randint(7, {2, 5}, torch::kLong));
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

TEST(CasesB, Sparse_DenseEmbeddings) {
  const auto trained = [](const nn::EmbeddingOptions& options) {
    return expect_same([&](Trial& run) {
      train_with_sgd(
          run, Tagger(options), torch::randint(7, {2, 5}, torch::kLong));
    });
  };
  for (const auto& options :
       {words().padding_idx(3), words().scale_grad_by_freq(true)}) {
    const auto report = trained(options);
    EXPECT_COUNTERS(
        report.total, eager == 0 && traces == 2 && program_calls == 7);
    EXPECT_COUNTERS(report.total, program_backwards == 5);
  }
}

TEST(CasesB, Sparse_EmbeddingThatRenormalisesItsWeight) {
  // In forward the weight is written to; one without a history.
  const auto report = expect_same([](Trial& run) {
    train_with_sgd(
        run,
        Tagger(words().max_norm(1.0)),
        torch::randint(7, {2, 5}, torch::kLong));
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 5);
}

// Twelve steps on noisy data, with a rate that falls; weights, statistics and
// the generator are compared after each.
template <class Make>
Report trained_by(const Make& make) {
  const auto report = expect_same([&](Trial& run) {
    NoisyNet net;
    run.compile(net);
    const auto optimizer = make(net->parameters());
    optim::StepLR schedule(*optimizer, /*step_size=*/4, /*gamma=*/0.5);
    for (int i = 0; i < 12; ++i) {
      optimizer->zero_grad(/*set_to_none=*/i % 3 != 0);
      auto loss = net(torch::randn({5, 4})).pow(2).sum();
      loss.backward();
      optimizer->step();
      schedule.step();
      run.note("loss", loss);
      run.note_module("net", *net);
      run.note_generator();
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 11);
  EXPECT_COUNTERS(report.total, program_backwards == 11);
  return report;
}

TEST(CasesB, Optimizers_Each) {
  using Parameters = std::vector<Tensor>;
  trained_by([](const Parameters& all) {
    return std::make_unique<optim::SGD>(
        all,
        optim::SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(0.1));
  });
  trained_by([](const Parameters& all) {
    return std::make_unique<optim::Adagrad>(
        all, optim::AdagradOptions(0.1).lr_decay(0.01));
  });
  trained_by([](const Parameters& all) {
    return std::make_unique<optim::RMSprop>(
        all, optim::RMSpropOptions(0.01).momentum(0.5).centered(true));
  });
  trained_by([](const Parameters& all) {
    return std::make_unique<optim::Adam>(
        all, optim::AdamOptions(0.02).weight_decay(0.1).amsgrad(true));
  });
  trained_by([](const Parameters& all) {
    return std::make_unique<optim::AdamW>(all, optim::AdamWOptions(0.02));
  });
}

TEST(CasesB, Optimizers_GroupsAndStateThatIsLoaded) {
  const auto report = expect_same([](Trial& run) {
    TwoLayers net;
    run.compile(net);
    const auto make = [&] {
      auto optimizer =
          std::make_unique<optim::Adam>(net->first->parameters(), 0.02);
      optimizer->add_param_group(
          {net->second->parameters(),
           std::make_unique<optim::AdamOptions>(0.1)});
      return optimizer;
    };
    auto optimizer = make();
    for (int i = 0; i < 8; ++i) {
      if (i == 5) {
        std::stringstream file;
        torch::save(*optimizer, file);
        optimizer = make();
        torch::load(*optimizer, file);
      }
      optimizer->zero_grad();
      net(torch::randn({5, 4})).pow(2).sum().backward();
      optimizer->step();
      run.note_module("net", *net);
    }
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 1 && program_calls == 7);
  EXPECT_COUNTERS(report.total, program_backwards == 7);
}

TEST(CasesB, Optimizers_WithAClosure) {
  // LBFGS calls and differentiates as often as its line search wants.
  const auto trained = [](bool search) {
    int64_t closures = 0;
    const auto report = expect_same([&](Trial& run) {
      closures = 0;
      TwoLayers net;
      run.compile(net);
      auto options = optim::LBFGSOptions(0.5).max_iter(4).history_size(3);
      if (search) {
        options.line_search_fn("strong_wolfe");
      }
      optim::LBFGS lbfgs(net->parameters(), options);
      const auto x = torch::randn({6, 4});
      const auto wanted = torch::randn({6, 3});
      for (int i = 0; i < 5; ++i) {
        const auto loss = lbfgs.step([&] {
          lbfgs.zero_grad();
          auto error = torch::mse_loss(net(x), wanted);
          error.backward();
          ++closures;
          return error;
        });
        run.note("loss", loss);
        run.note("closures", closures);
        run.note_module("net", *net);
        {
          const torch::NoGradGuard no_grad;
          run.note("validation", net(x));
        }
      }
    });
    EXPECT_GT(closures, 15);
    EXPECT_COUNTERS(
        report.total,
        eager == 0 && traces == 2 && calls == closures + 5 &&
            program_calls == calls - 2);
    EXPECT_COUNTERS(report.total, program_backwards == closures - 1);
  };
  trained(false);
  trained(true);
}

} // namespace
} // namespace temper::testing
