// A library with a module type `NetImpl`, which the other one has as well.
#include <temper/temper.h>

#include <array>
#include <vector>

#include "library.h"

struct NetImpl : temper::Module<NetImpl> {
  torch::nn::Linear fc{nullptr};
  bool flag = true;
  std::vector<double> scales{1.0, 2.0};
  std::array<double, 100> table{};
  NetImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(2, 2));
  }
  void change() {
    table.back() += 1.0;
    scales.push_back(3.0);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return fc(x) * scales.back() + table.back();
  }
  TEMPER_FIELDS(scales)
};
TEMPER_MODULE(Net);

extern "C" TEMPER_API const Library* temper_test_library() {
  static const Library library{
      [] { return std::shared_ptr<torch::nn::Module>(Net().ptr()); },
      [](torch::nn::Module& net) { net.as<Net>()->compile(); },
      [](torch::nn::Module& net, const torch::Tensor& x) {
        return (*net.as<Net>())(x);
      },
      [](torch::nn::Module& net, const torch::Tensor& x) {
        return net.as<Net>()->forward(x);
      },
      [](torch::nn::Module& net) {
        return temper::counters_of(*net.as<Net>());
      },
      [](torch::nn::Module& net) { net.as<Net>()->change(); }};
  return &library;
}
