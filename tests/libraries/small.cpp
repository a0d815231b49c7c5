// A library with a module type `NetImpl`, which the other one has as well.
#include <temper/temper.h>

#include "library.h"

struct NetImpl : temper::Module<NetImpl> {
  double gain = 2.0;
  void reset() override {}
  void change() {
    gain += 1.0;
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return x * gain;
  }
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
