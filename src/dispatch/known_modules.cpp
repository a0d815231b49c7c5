// The process-wide table of module types.
#include "dispatch/known_modules.h"

#include <torch/nn/modules.h>

#include <mutex>
#include <shared_mutex>
#include <typeindex>
#include <unordered_map>
#include <utility>

namespace temper::dispatch {

namespace {

// Every module of LibTorch that can be made, by the name of its holder.
// clang-format off
#define TEMPER_LIBTORCH_MODULES(_)                                            \
  _(Linear) _(Bilinear) _(Identity) _(Flatten) _(Unflatten) _(Conv1d)         \
  _(Conv2d) _(Conv3d) _(ConvTranspose1d) _(ConvTranspose2d)                   \
  _(ConvTranspose3d) _(BatchNorm1d) _(BatchNorm2d) _(BatchNorm3d)             \
  _(InstanceNorm1d) _(InstanceNorm2d) _(InstanceNorm3d) _(LayerNorm)          \
  _(GroupNorm) _(LocalResponseNorm) _(CrossMapLRN2d) _(Embedding)             \
  _(EmbeddingBag) _(Dropout) _(Dropout2d) _(Dropout3d) _(AlphaDropout)        \
  _(FeatureAlphaDropout) _(ELU) _(SELU) _(Hardshrink) _(Hardtanh)             \
  _(LeakyReLU) _(LogSigmoid) _(Softmax) _(Softmin) _(LogSoftmax)              \
  _(Softmax2d) _(PReLU) _(ReLU) _(ReLU6) _(RReLU) _(CELU) _(GLU) _(GELU)      \
  _(SiLU) _(Mish) _(Sigmoid) _(Softplus) _(Softshrink) _(Softsign) _(Tanh)    \
  _(Tanhshrink) _(Threshold) _(MultiheadAttention)                            \
  _(AdaptiveLogSoftmaxWithLoss) _(CosineSimilarity) _(PairwiseDistance)       \
  _(Fold) _(Unfold) _(L1Loss) _(KLDivLoss) _(MSELoss) _(BCELoss)              \
  _(HingeEmbeddingLoss) _(MultiMarginLoss) _(CosineEmbeddingLoss)             \
  _(SmoothL1Loss) _(HuberLoss) _(MultiLabelMarginLoss) _(SoftMarginLoss)      \
  _(MultiLabelSoftMarginLoss) _(TripletMarginLoss)                            \
  _(TripletMarginWithDistanceLoss) _(CTCLoss) _(PoissonNLLLoss)               \
  _(MarginRankingLoss) _(NLLLoss) _(CrossEntropyLoss) _(BCEWithLogitsLoss)    \
  _(ReflectionPad1d) _(ReflectionPad2d) _(ReflectionPad3d)                    \
  _(ReplicationPad1d) _(ReplicationPad2d) _(ReplicationPad3d) _(ZeroPad1d)    \
  _(ZeroPad2d) _(ZeroPad3d) _(ConstantPad1d) _(ConstantPad2d)                 \
  _(ConstantPad3d) _(PixelShuffle) _(PixelUnshuffle) _(Upsample)              \
  _(AvgPool1d) _(AvgPool2d) _(AvgPool3d) _(MaxPool1d) _(MaxPool2d)            \
  _(MaxPool3d) _(AdaptiveMaxPool1d) _(AdaptiveMaxPool2d)                      \
  _(AdaptiveMaxPool3d) _(AdaptiveAvgPool1d) _(AdaptiveAvgPool2d)              \
  _(AdaptiveAvgPool3d) _(MaxUnpool1d) _(MaxUnpool2d) _(MaxUnpool3d)           \
  _(FractionalMaxPool2d) _(FractionalMaxPool3d) _(LPPool1d) _(LPPool2d)       \
  _(LPPool3d) _(RNN) _(LSTM) _(GRU) _(RNNCell) _(LSTMCell) _(GRUCell)         \
  _(Transformer) _(TransformerEncoder) _(TransformerDecoder)                  \
  _(TransformerEncoderLayer) _(TransformerDecoderLayer) _(Functional)         \
  _(Sequential) _(ModuleList) _(ModuleDict) _(ParameterList)                  \
  _(ParameterDict)
// clang-format on

using Known = std::shared_ptr<const ModuleType>;

template <typename Impl>
Known own_type() {
  return std::make_shared<const ModuleType>(ModuleType{
      sizeof(Impl), detail::padding_of<Impl>(), nullptr, /*own=*/true});
}

struct Table {
  std::shared_mutex mutex;
  // By address: in a process there may be two types of one name, in libraries
  // that hide their symbols or are loaded apart.
  std::unordered_map<const std::type_info*, Known> types;
  // By name: of a type that LibTorch defines in a header each library may have
  // its own type_info.
  std::unordered_map<std::type_index, Known> own;

  Table() {
#define TEMPER_ADD(name) \
  own[typeid(torch::nn::name##Impl)] = own_type<torch::nn::name##Impl>();
    TEMPER_LIBTORCH_MODULES(TEMPER_ADD)
#undef TEMPER_ADD
    own[typeid(torch::nn::Module)] = own_type<torch::nn::Module>();
  }
};

Table& table() {
  // Never destroyed: modules may outlive static destruction.
  static Table& instance = *new Table();
  return instance;
}

} // namespace

Known module_type(const torch::nn::Module& module) {
  const std::type_info& type = typeid(module);
  Table& all = table();
  const std::shared_lock lock(all.mutex);
  if (const auto it = all.types.find(&type); it != all.types.end()) {
    return it->second;
  }
  const auto it = all.own.find(type);
  return it == all.own.end() ? nullptr : it->second;
}

void record_module_type(const std::type_info& type, ModuleType known) {
  Table& all = table();
  const std::unique_lock lock(all.mutex);
  if (all.own.count(type) == 0) {
    // Anew: a library at this address may have been unloaded.
    all.types[&type] = std::make_shared<const ModuleType>(std::move(known));
  }
}

bool holds_functions(const torch::nn::Module& module) {
  const std::type_index type = typeid(module);
  return type == typeid(torch::nn::FunctionalImpl) ||
      type == typeid(torch::nn::TransformerImpl) ||
      type == typeid(torch::nn::TransformerEncoderLayerImpl) ||
      type == typeid(torch::nn::TransformerDecoderLayerImpl) ||
      type == typeid(torch::nn::TripletMarginWithDistanceLossImpl);
}

} // namespace temper::dispatch
