// Case H10 further: LibTorch's own modules that look at values, and those next
// to them that don't.
#include <gtest/gtest.h>

#include "nets.h"
#include "support/compare.h"

namespace temper::testing {
namespace {

using torch::Tensor;
namespace nn = torch::nn;
namespace rnn = torch::nn::utils::rnn;

constexpr const char* kEqual =
    "data dependence: aten::equal of different tensors decides what runs ";

/// LibTorch's encoder with all its masks: [seq, batch, 8].
struct MaskedEncoderImpl : temper::Module<MaskedEncoderImpl> {
  nn::TransformerEncoder encoder{nullptr};

  MaskedEncoderImpl() {
    reset();
  }
  void reset() override {
    const auto layer =
        nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(6).dropout(
            0.1);
    encoder = register_module(
        "encoder",
        nn::TransformerEncoder(nn::TransformerEncoderOptions(layer, 2).norm(
            nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({8}))))));
  }
  Tensor forward(Tensor x, Tensor mask, Tensor padding) {
    return encoder(x, mask, padding);
  }
};
TEMPER_MODULE(MaskedEncoder);

/// LibTorch's decoder: [target, batch, 8], [source, batch, 8].
struct DecoderImpl : temper::Module<DecoderImpl> {
  nn::TransformerDecoder decoder{nullptr};

  DecoderImpl() {
    reset();
  }
  void reset() override {
    const auto layer =
        nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(6).dropout(
            0.1);
    decoder = register_module(
        "decoder",
        nn::TransformerDecoder(nn::TransformerDecoderOptions(layer, 2)));
  }
  Tensor forward(Tensor target, Tensor memory, Tensor mask) {
    return decoder(target, memory, mask);
  }
};
TEMPER_MODULE(Decoder);

struct WholeTransformerImpl : temper::Module<WholeTransformerImpl> {
  nn::Transformer transformer{nullptr};

  WholeTransformerImpl() {
    reset();
  }
  void reset() override {
    transformer = register_module(
        "transformer",
        nn::Transformer(
            nn::TransformerOptions(8, 2, /*num_encoder_layers=*/1, 1)
                .dim_feedforward(6)));
  }
  Tensor forward(Tensor source, Tensor target, Tensor mask) {
    return transformer(source, target, /*src_mask=*/Tensor(), mask);
  }
};
TEMPER_MODULE(WholeTransformer);

Tensor causal(int64_t length) {
  return nn::TransformerImpl::generate_square_subsequent_mask(length);
}

// Five steps of training and three evaluations; `inputs` makes the arguments.
template <class Net, class Inputs>
void train(Trial& run, Net net, const Inputs& inputs) {
  run.compile(net);
  torch::optim::SGD sgd(net->parameters(), 0.1);
  for (int i = 0; i < 5; ++i) {
    sgd.zero_grad();
    auto y = std::apply(net, inputs());
    run.note("y", y);
    y.pow(2).sum().backward();
    sgd.step();
    run.note_module("net", *net);
    run.note_generator();
  }
  const torch::NoGradGuard no_grad;
  net->eval();
  for (int i = 0; i < 3; ++i) {
    run.note("evaluation", std::apply(net, inputs()));
  }
}

TEST(CasesH, H10_EncoderWithMasks) {
  // The mask of the padding is other data in each call.
  const auto report = expect_same([](Trial& run) {
    int64_t call = 0;
    train(run, MaskedEncoder(), [&] {
      auto padding = torch::zeros({2, 4}, torch::kBool);
      padding.select(0, 1).slice(0, 1 + call++ % 3).fill_(true);
      return std::make_tuple(torch::randn({4, 2, 8}), causal(4), padding);
    });
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 6);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesH, H10_DecoderWithSequencesOfOneLength) {
  // Attention between two sequences is told from that of one with itself by
  // comparing their values.
  const auto report = expect_same([](Trial& run) {
    train(run, Decoder(), [] {
      return std::make_tuple(
          torch::randn({4, 2, 8}), torch::randn({4, 2, 8}), causal(4));
    });
  });
  EXPECT_COUNTERS(report.total, eager_for(kEqual) == 6 && eager == 6);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

TEST(CasesH, H10_DecoderWithSequencesOfTwoLengths) {
  const auto report = expect_same([](Trial& run) {
    train(run, Decoder(), [] {
      return std::make_tuple(
          torch::randn({3, 2, 8}), torch::randn({5, 2, 8}), causal(3));
    });
  });
  // The lengths tell that they are not equal.
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 6);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

TEST(CasesH, H10_WholeTransformer) {
  const auto report = expect_same([](Trial& run) {
    train(run, WholeTransformer(), [] {
      return std::make_tuple(
          torch::randn({4, 2, 8}), torch::randn({4, 2, 8}), causal(4));
    });
  });
  EXPECT_COUNTERS(report.total, eager_for(kEqual) == 6 && eager == 6);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 0);
}

/// Attention to features of another width, for which LibTorch compares nothing.
struct CrossImpl : temper::Module<CrossImpl> {
  nn::MultiheadAttention attention{nullptr};

  CrossImpl() {
    reset();
  }
  void reset() override {
    attention = register_module(
        "attention",
        nn::MultiheadAttention(
            nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6).dropout(0.1)));
  }
  Tensor forward(Tensor query, Tensor key, Tensor value) {
    return std::get<0>(attention(query, key, value));
  }
};
TEMPER_MODULE(Cross);

TEST(CasesH, H10_AttentionToFeaturesOfAnotherWidth) {
  const auto report = expect_same([](Trial& run) {
    train(run, Cross(), [] {
      return std::make_tuple(
          torch::randn({4, 2, 8}),
          torch::randn({4, 2, 6}),
          torch::randn({4, 2, 6}));
    });
  });
  EXPECT_COUNTERS(
      report.total, eager == 0 && traces == 2 && program_calls == 6);
  EXPECT_COUNTERS(report.total, program_backwards == 4);
}

/// Statistics that are averages of all batches.
struct AveragesImpl : temper::Module<AveragesImpl> {
  nn::Linear fc{nullptr};
  nn::BatchNorm1d norm{nullptr};

  AveragesImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", nn::Linear(4, 3));
    norm = register_module(
        "norm",
        nn::BatchNorm1d(nn::BatchNorm1dOptions(3).momentum(std::nullopt)));
  }
  Tensor forward(Tensor x) {
    return norm(fc(x));
  }
};
TEMPER_MODULE(Averages);

TEST(CasesH, H10_BatchNormWithoutMomentum) {
  const auto report = expect_same([](Trial& run) {
    train(run, Averages(), [] {
      return std::make_tuple(torch::randn({6, 4}));
    });
  });
  // Training reads the count of batches; evaluation does not.
  EXPECT_COUNTERS(
      report.total,
      eager_for("data dependence: aten::_local_scalar_dense") == 4 &&
          eager == 4);
  EXPECT_COUNTERS(report.total, traces == 2 && program_calls == 2);
}

/// Packs, runs and pads, as a model of sentences does.
template <class Rnn>
struct SentencesImpl : temper::Module<SentencesImpl<Rnn>> {
  Rnn body{nullptr};
  nn::Linear out{nullptr};

  SentencesImpl() {
    reset();
  }
  void reset() override {
    body = this->register_module("body", Rnn(4, 5));
    out = this->register_module("out", nn::Linear(5, 2));
  }
  std::tuple<Tensor, Tensor> forward(Tensor x, Tensor lengths) {
    const auto packed = rnn::pack_padded_sequence(
        x, lengths, /*batch_first=*/false, /*enforce_sorted=*/false);
    const auto states = std::get<0>(body->forward_with_packed_input(packed));
    const auto [padded, found] = rnn::pad_packed_sequence(states);
    return {out(padded), found};
  }
};
template <class Rnn>
using Sentences = temper::ModuleHolder<SentencesImpl<Rnn>>;

template <class Rnn>
Report expect_packed_inside() {
  return expect_same([](Trial& run) {
    Sentences<Rnn> net;
    run.compile(net);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    for (int i = 0; i < 5; ++i) {
      const auto lengths =
          i % 2 == 0 ? torch::tensor({2, 4, 3}) : torch::tensor({4, 1, 1});
      auto x = torch::randn({4, 3, 4}).requires_grad_();
      sgd.zero_grad();
      const auto [y, found] = net(x, lengths);
      run.note("y", y);
      run.note("lengths", found);
      y.pow(2).sum().backward();
      sgd.step();
      run.note_grad("x", x);
      run.note_module("net", *net);
    }
  });
}

TEST(CasesH, H10_PackedInsideTheCall) {
  for (const auto& report :
       {expect_packed_inside<nn::LSTM>(), expect_packed_inside<nn::GRU>()}) {
    EXPECT_COUNTERS(
        report.total,
        reasons ==
            Reasons{{"data dependence: aten::_pack_padded_sequence", 4}});
    EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
  }
}

template <class Rnn>
Report expect_packed_argument() {
  return expect_same([](Trial& run) {
    Rnn body(4, 5);
    auto f = run.compile_function(
        [body](rnn::PackedSequence x) mutable {
          return std::get<0>(body->forward_with_packed_input(x));
        },
        body);
    torch::optim::SGD sgd(body->parameters(), 0.1);
    for (int i = 0; i < 5; ++i) {
      // Other numbers, of the same sizes.
      const auto lengths =
          i % 2 == 0 ? torch::tensor({4, 3, 2}) : torch::tensor({4, 4, 1});
      auto x = torch::randn({4, 3, 4}).requires_grad_();
      sgd.zero_grad();
      const rnn::PackedSequence y = f(rnn::pack_padded_sequence(x, lengths));
      run.note("data", y.data());
      run.note("batch sizes", y.batch_sizes());
      y.data().pow(2).sum().backward();
      sgd.step();
      run.note_grad("x", x);
      run.note_module("body", *body);
    }
  });
}

TEST(CasesH, H10_PackedArguments) {
  for (const auto& report :
       {expect_packed_argument<nn::LSTM>(),
        expect_packed_argument<nn::GRU>()}) {
    EXPECT_COUNTERS(
        report.total,
        reasons == Reasons{{"data dependence: aten::_local_scalar_dense", 4}});
    EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
  }
}

TEST(CasesH, H10_PackedOperandsThatAreReadByPointer) {
  // With a state that is given nobody asks for the size of the batch, but the
  // operator cuts the data by what the batch sizes are.
  const auto report = expect_same([](Trial& run) {
    nn::GRU body(4, 5);
    auto f = run.compile_function(
        [body](Tensor data, Tensor batch_sizes, Tensor state) mutable {
          return at::gru(
              data,
              batch_sizes,
              state,
              body->parameters(),
              /*has_biases=*/true,
              /*num_layers=*/1,
              /*dropout=*/0.0,
              /*train=*/true,
              /*bidirectional=*/false);
        },
        body);
    for (int i = 0; i < 5; ++i) {
      const auto batch_sizes = i % 2 == 0 ? torch::tensor({3, 3, 2, 1})
                                          : torch::tensor({3, 2, 2, 2});
      auto data = torch::randn({9, 4}).requires_grad_();
      const auto [y, last] = f(data, batch_sizes, torch::zeros({1, 3, 5}));
      run.note("y", y);
      run.note("last", last);
      (y.pow(2).sum() + last.sum()).backward();
      run.note_grad("data", data);
      run.note_module("body", *body);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"the data of a tensor is read outside of tensor ops (data_ptr, "
               "an accessor, an Eigen map)",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H10_PackedByNumbersInTheCode) {
  // What is read is a literal of the code, the same in each call.
  const auto report = expect_same([](Trial& run) {
    nn::GRU body(4, 5);
    auto f = run.compile_function(
        [body](Tensor data, Tensor state) mutable {
          return at::gru(
              data,
              torch::tensor({3, 3, 2, 1}),
              state,
              body->parameters(),
              /*has_biases=*/true,
              /*num_layers=*/1,
              /*dropout=*/0.0,
              /*train=*/true,
              /*bidirectional=*/false);
        },
        body);
    for (int i = 0; i < 5; ++i) {
      auto data = torch::randn({9, 4}).requires_grad_();
      const auto [y, last] = f(data, torch::zeros({1, 3, 5}));
      run.note("y", y);
      (y.pow(2).sum() + last.sum()).backward();
      run.note_grad("data", data);
      run.note_module("body", *body);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons ==
          Reasons{
              {"the data of a tensor is read outside of tensor ops (data_ptr, "
               "an accessor, an Eigen map)",
               4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H10_LossesWithLengths) {
  // The size of what it keeps for the backward depends on the lengths.
  const auto report = expect_same([](Trial& run) {
    auto f = run.compile_function([](Tensor x, Tensor lengths) {
      return torch::ctc_loss(
          x.log_softmax(2),
          torch::tensor({{1, 2}, {2, 1}}),
          lengths,
          torch::tensor({2, 2}));
    });
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({6, 2, 3}).requires_grad_();
      auto loss =
          f(x, i % 2 == 0 ? torch::tensor({6, 5}) : torch::tensor({6, 4}));
      run.note("loss", loss);
      loss.backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total,
      reasons == Reasons{{"data dependence: aten::_ctc_loss", 4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

TEST(CasesH, H10_AdaptiveSoftmax) {
  const auto report = expect_same([](Trial& run) {
    nn::AdaptiveLogSoftmaxWithLoss softmax(
        nn::AdaptiveLogSoftmaxWithLossOptions(4, 9, {3, 6}).div_value(2));
    auto f = run.compile_function(
        [softmax](Tensor x, Tensor labels) mutable {
          return softmax(x, labels).output;
        },
        softmax);
    for (int i = 0; i < 5; ++i) {
      auto x = torch::randn({8, 4}).requires_grad_();
      auto y = f(x, torch::randint(9, {8}, torch::kLong));
      run.note("y", y);
      y.sum().backward();
      run.note_grad("x", x);
    }
  });
  EXPECT_COUNTERS(
      report.total, reasons == Reasons{{"data dependence: aten::nonzero", 4}});
  EXPECT_COUNTERS(report.total, traces == 1 && program_calls == 0);
}

} // namespace
} // namespace temper::testing
