// Convolutional models: residual CNN, ResNet-18, U-Net.
#include "model_suite.h"

namespace temper::testing {
namespace {

namespace nn = torch::nn;

nn::Conv2d conv3x3(int64_t in, int64_t out, int64_t stride = 1) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false));
}

/// The basic block of ResNet: two convolutions and a shortcut.
struct ResidualImpl : temper::Module<ResidualImpl> {
  int64_t in, out, stride;
  nn::Conv2d conv1{nullptr}, conv2{nullptr};
  nn::BatchNorm2d bn1{nullptr}, bn2{nullptr};
  nn::Sequential shortcut{nullptr};

  ResidualImpl(int64_t in_, int64_t out_, int64_t stride_)
      : in(in_), out(out_), stride(stride_) {
    reset();
  }
  void reset() override {
    conv1 = register_module("conv1", conv3x3(in, out, stride));
    bn1 = register_module("bn1", nn::BatchNorm2d(out));
    conv2 = register_module("conv2", conv3x3(out, out));
    bn2 = register_module("bn2", nn::BatchNorm2d(out));
    if (stride != 1 || in != out) {
      shortcut = register_module(
          "shortcut",
          nn::Sequential(
              nn::Conv2d(
                  nn::Conv2dOptions(in, out, 1).stride(stride).bias(false)),
              nn::BatchNorm2d(out)));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    auto identity = shortcut.is_empty() ? x : shortcut->forward(x);
    auto y = bn1(conv1(x)).relu_();
    y = bn2(conv2(y));
    y += identity;
    return torch::relu_(y);
  }
};
TEMPER_MODULE(Residual);

/// `widths.size()` stages of `depth` blocks; ResNet-18 is four of two.
struct ResNetImpl : temper::Module<ResNetImpl> {
  std::vector<int64_t> widths;
  int64_t depth;
  nn::Conv2d stem{nullptr};
  nn::BatchNorm2d bn{nullptr};
  nn::Sequential blocks{nullptr};
  nn::Linear fc{nullptr};

  ResNetImpl(std::vector<int64_t> widths_, int64_t depth_)
      : widths(std::move(widths_)), depth(depth_) {
    reset();
  }
  void reset() override {
    stem = register_module("stem", conv3x3(3, widths[0]));
    bn = register_module("bn", nn::BatchNorm2d(widths[0]));
    nn::Sequential stages;
    int64_t in = widths[0];
    for (size_t stage = 0; stage < widths.size(); ++stage) {
      for (int64_t i = 0; i < depth; ++i) {
        const bool shrinks = stage > 0 && i == 0;
        stages->push_back(Residual(in, widths[stage], shrinks ? 2 : 1));
        in = widths[stage];
      }
    }
    blocks = register_module("blocks", stages);
    fc = register_module("fc", nn::Linear(in, 5));
  }
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(bn(stem(x)));
    x = blocks->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
    return fc(x);
  }
  TEMPER_FIELDS(widths, depth)
};
TEMPER_MODULE(ResNet);

struct ResidualCnnModel : Supervised<ResidualCnnModel, ResNet> {
  ResidualCnnModel(Trial& run, const Plan& plan)
      : Supervised(run, plan, std::vector<int64_t>{6}, 2) {}
  static Batch batch(int64_t n) {
    return {
        torch::randn({n, 3, 8, 8}).requires_grad_(),
        torch::randint(5, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(logits, batch[1]);
  }
};
TEMPER_TEST_MODEL(ResidualCnn, ResidualCnnModel);

/// The same with weights and batches in channels-last memory.
struct ChannelsLastModel : ResidualCnnModel {
  ChannelsLastModel(Trial& run, const Plan& plan)
      : ResidualCnnModel(run, plan) {
    for (auto& p : net->parameters()) {
      if (p.dim() == 4) {
        p.set_data(p.contiguous(torch::MemoryFormat::ChannelsLast));
      }
    }
  }
  static Batch batch(int64_t n) {
    auto batch = ResidualCnnModel::batch(n);
    batch[0] = batch[0]
                   .detach()
                   .contiguous(torch::MemoryFormat::ChannelsLast)
                   .requires_grad_();
    return batch;
  }
};
TEMPER_TEST_MODEL(ChannelsLast, ChannelsLastModel);

struct ResNet18Model : Supervised<ResNet18Model, ResNet> {
  ResNet18Model(Trial& run, const Plan& plan)
      : Supervised(run, plan, std::vector<int64_t>{4, 8, 12, 16}, 2) {}
  static Batch batch(int64_t n) {
    return {torch::randn({n, 3, 16, 16}), torch::randint(5, {n}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto logits = net(batch[0]);
    run.note("logits", logits);
    return torch::cross_entropy_loss(
        logits, batch[1], {}, at::Reduction::Mean, -100, 0.1);
  }
};
TEMPER_TEST_MODEL(ResNet18, ResNet18Model);

struct DoubleConvImpl : temper::Module<DoubleConvImpl> {
  int64_t in, out;
  nn::Sequential layers{nullptr};

  DoubleConvImpl(int64_t in_, int64_t out_) : in(in_), out(out_) {
    reset();
  }
  void reset() override {
    layers = register_module(
        "layers",
        nn::Sequential(
            conv3x3(in, out),
            nn::BatchNorm2d(out),
            nn::ReLU(nn::ReLUOptions().inplace(true)),
            conv3x3(out, out),
            nn::BatchNorm2d(out),
            nn::ReLU(nn::ReLUOptions().inplace(true))));
  }
  torch::Tensor forward(torch::Tensor x) {
    return layers->forward(x);
  }
};
TEMPER_MODULE(DoubleConv);

struct UNetImpl : temper::Module<UNetImpl> {
  DoubleConv down1{nullptr}, down2{nullptr}, bottom{nullptr};
  DoubleConv up2{nullptr}, up1{nullptr};
  nn::ConvTranspose2d grow2{nullptr};
  nn::Conv2d out{nullptr};

  UNetImpl() {
    reset();
  }
  void reset() override {
    down1 = register_module("down1", DoubleConv(1, 4));
    down2 = register_module("down2", DoubleConv(4, 8));
    bottom = register_module("bottom", DoubleConv(8, 8));
    grow2 = register_module(
        "grow2",
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(8, 8, 2).stride(2)));
    up2 = register_module("up2", DoubleConv(16, 4));
    up1 = register_module("up1", DoubleConv(8, 4));
    out = register_module("out", nn::Conv2d(nn::Conv2dOptions(4, 2, 1)));
  }
  torch::Tensor forward(torch::Tensor x) {
    auto a = down1(x);
    auto b = down2(torch::max_pool2d(a, 2));
    auto c = bottom(torch::max_pool2d(b, 2));
    c = up2(torch::cat({grow2(c), b}, 1));
    // The other way to grow; sizes come from the skip connection.
    c = nn::functional::interpolate(
        c,
        nn::functional::InterpolateFuncOptions()
            .size(std::vector<int64_t>{a.size(2), a.size(3)})
            .mode(torch::kBilinear)
            .align_corners(false));
    return out(up1(torch::cat({c, a}, 1)));
  }
};
TEMPER_MODULE(UNet);

struct UNetModel : Supervised<UNetModel, UNet> {
  using Supervised::Supervised;
  static Batch batch(int64_t n) {
    return {
        torch::randn({n, 1, 8, 12}),
        torch::randint(2, {n, 8, 12}, torch::kLong)};
  }
  torch::Tensor loss(Trial& run, const Batch& batch) {
    auto mask = net(batch[0]);
    run.note("mask", mask);
    return torch::cross_entropy_loss(mask, batch[1]);
  }
};
TEMPER_TEST_MODEL(UNet, UNetModel);

} // namespace
} // namespace temper::testing
