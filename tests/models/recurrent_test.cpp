// Recurrent models: LSTM, GRU, a translation model with attention, and one
// whose hidden state is a field.
#include "model_suite.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

struct LstmTaggerImpl : temper::Module<LstmTaggerImpl> {
  nn::Embedding words{nullptr};
  nn::LSTM lstm{nullptr};
  nn::Linear out{nullptr};

  LstmTaggerImpl() {
    reset();
  }
  void reset() override {
    words = register_module("words", nn::Embedding(15, 6));
    lstm = register_module(
        "lstm",
        nn::LSTM(nn::LSTMOptions(6, 7)
                     .num_layers(2)
                     .batch_first(true)
                     .bidirectional(true)
                     .dropout(0.2)));
    out = register_module("out", nn::Linear(14, 4));
  }
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(
      torch::Tensor tokens) {
    auto [hidden, state] = lstm->forward(words(tokens));
    return {out(hidden), std::get<0>(state), std::get<1>(state)};
  }
};
TEMPER_MODULE(LstmTagger);

struct LstmModel : Supervised<LstmModel, LstmTagger> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {
        torch::randint(15, {n, 6}, torch::kLong),
        torch::randint(4, {n, 6}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto [logits, h, c] = net(batch[0]);
    run.note("logits", logits);
    run.note("h", h);
    run.note("c", c);
    return torch::cross_entropy_loss(logits.transpose(1, 2), batch[1]) +
        0.01 * c.pow(2).mean();
  }
};
TEMPER_TEST_MODEL(Lstm, LstmModel);

struct GruForecastImpl : temper::Module<GruForecastImpl> {
  nn::GRU gru{nullptr};
  nn::Linear out{nullptr};

  GruForecastImpl() {
    reset();
  }
  void reset() override {
    gru = register_module("gru", nn::GRU(nn::GRUOptions(3, 8).num_layers(2)));
    out = register_module("out", nn::Linear(8, 3));
  }
  std::tuple<torch::Tensor, torch::Tensor> forward(
      torch::Tensor x,
      torch::Tensor h) {
    auto [y, next] = gru->forward(x, h);
    return {x + out(y), next};
  }
};
TEMPER_MODULE(GruForecast);

// The state is carried from one window to the next, as in truncated
// backpropagation through time.
struct GruModel : Supervised<GruModel, GruForecast> {
  using Supervised::Supervised;
  static constexpr Work kWork = {.backwards = 2};

  static Batch batch(int64_t n) {
    return {torch::randn({10, n, 3}).requires_grad_(), torch::zeros({2, n, 8})};
  }
  void train(Trial& run, const Batch& batch) {
    net->train();
    auto h = batch[1];
    for (const int64_t start : {0, 4}) {
      optimizer->zero_grad();
      auto x = batch[0].narrow(0, start, 5);
      auto [y, next] = net(x, h);
      run.note("y", y);
      run.note("h", next);
      auto loss = torch::mse_loss(
          y.narrow(0, 0, 4), batch[0].detach().narrow(0, start + 1, 4));
      loss.backward();
      optimizer->step();
      h = next.detach();
    }
    run.note_grad("x", batch[0]);
  }
  void evaluate(Trial& run, const Batch& batch) {
    const torch::NoGradGuard no_grad;
    net->eval();
    run.note("y", net(batch[0].detach(), batch[1]));
  }
};
TEMPER_TEST_MODEL(Gru, GruModel);

struct TranslatorImpl : temper::Module<TranslatorImpl> {
  nn::Embedding source{nullptr}, target{nullptr};
  nn::GRU encoder{nullptr};
  nn::GRUCell cell{nullptr};
  nn::Linear query{nullptr}, combine{nullptr}, out{nullptr};

  TranslatorImpl() {
    reset();
  }
  void reset() override {
    source = register_module("source", nn::Embedding(12, 6));
    target = register_module("target", nn::Embedding(9, 6));
    encoder = register_module(
        "encoder", nn::GRU(nn::GRUOptions(6, 8).batch_first(true)));
    cell = register_module("cell", nn::GRUCell(nn::GRUCellOptions(6, 8)));
    query = register_module(
        "query", nn::Linear(nn::LinearOptions(8, 8).bias(false)));
    combine = register_module("combine", nn::Linear(16, 8));
    out = register_module("out", nn::Linear(8, 9));
  }
  /// Logits for all words of `words` but the first, each told the one before.
  torch::Tensor forward(torch::Tensor text, torch::Tensor words) {
    auto [keys, state] = encoder->forward(source(text));
    auto h = state.squeeze(0);
    std::vector<torch::Tensor> logits;
    for (int64_t t = 0; t + 1 < words.size(1); ++t) {
      h = cell(target(words.select(1, t)), h);
      auto scores = torch::bmm(keys, query(h).unsqueeze(2)).squeeze(2);
      auto weights = torch::softmax(scores, 1);
      auto context = torch::bmm(weights.unsqueeze(1), keys).squeeze(1);
      logits.push_back(out(torch::tanh(combine(torch::cat({h, context}, 1)))));
    }
    return torch::stack(logits, 1);
  }
};
TEMPER_MODULE(Translator);

struct TranslatorModel : Supervised<TranslatorModel, Translator> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {
        torch::randint(12, {n, 5}, torch::kLong),
        torch::randint(9, {n, 4}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0], batch[1]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(
        logits.flatten(0, 1), batch[1].narrow(1, 1, 3).flatten());
  }
};
TEMPER_TEST_MODEL(Seq2SeqAttention, TranslatorModel);

struct StatefulImpl : temper::Module<StatefulImpl> {
  nn::Linear in{nullptr}, recur{nullptr}, out{nullptr};
  torch::Tensor h;

  StatefulImpl() {
    reset();
  }
  void reset() override {
    in = register_module("in", nn::Linear(4, 6));
    recur = register_module("recur", nn::Linear(6, 6));
    out = register_module("out", nn::Linear(6, 2));
  }
  void start_episode() {
    h = torch::Tensor();
  }
  torch::Tensor forward(torch::Tensor x) {
    auto next = in(x);
    if (h.defined()) {
      next = next + recur(h);
    }
    h = torch::tanh(next);
    return out(h);
  }
};
TEMPER_MODULE(Stateful);

// Episodes of three calls; gradients flow through the field within one.
struct StatefulModel : Supervised<StatefulModel, Stateful> {
  using Supervised::Supervised;
  // Each call writes to the field. In 30 calls of a size there are four kinds,
  // of which 10 are traced to see whether they still do.
  static constexpr Work kWork = {
      .signatures = 0,
      .graphs = 0,
      .backwards = 0,
      .failed_traces = 10,
      .eager = 20,
      .reason =
          "the call changes watched state: 'StatefulImpl': field at bytes "};

  static Batch batch(int64_t n) {
    return {torch::randn({3, n, 4}), torch::randn({3, n, 2})};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    net->start_episode();
    torch::Tensor sum;
    for (int64_t t = 0; t < 3; ++t) {
      auto y = net(batch[0][t]);
      run.note("y", y);
      run.note("h", net->h);
      auto part = torch::mse_loss(y, batch[1][t]);
      sum = sum.defined() ? sum + part : part;
    }
    return sum;
  }
};
TEMPER_TEST_MODEL(HiddenStateField, StatefulModel);

} // namespace
} // namespace temper::testing
