// A user's program against an installed temper: headers, library and LibTorch
// fit together, a model is compiled, and the user's own loops are parallel.
#include <cstring>
#include <iostream>

#include <torch/torch.h>

#include <temper/temper.h>

namespace {

struct NetImpl : temper::Module<NetImpl> {
  torch::nn::Linear fc{nullptr};
  NetImpl() {
    reset();
  }
  void reset() override {
    fc = register_module("fc", torch::nn::Linear(8, 8));
  }
  torch::Tensor forward(torch::Tensor x) {
    return torch::gelu(fc(x));
  }
};
TEMPER_MODULE(Net);

// False, with a line that says what is wrong, where `ok` does not hold.
bool check(bool ok, const char* what) {
  if (!ok) {
    std::cerr << "uses_temper: " << what << '\n';
  }
  return ok;
}

bool compiles_a_module() {
  torch::NoGradGuard no_grad;
  Net net;
  net->compile();
  const auto x = torch::rand({4, 8});
  const auto expected = net->forward(x);
  for (int call = 0; call < 5; ++call) {
    if (!check(
            torch::allclose(net(x), expected),
            "a compiled call differs from the plain one")) {
      return false;
    }
  }
  return check(
      temper::counters().program_calls > 0,
      "no call ran what was compiled; see temper::explain");
}

} // namespace

int main() {
  bool ok = check(
      std::strcmp(temper::torch_version(), TORCH_VERSION) == 0,
      "temper was built against another LibTorch than this program");
#ifndef _OPENMP
  ok = check(false, "at::parallel_for is serial here: no -fopenmp");
#endif
  ok = ok && compiles_a_module();
  if (!ok) {
    return 1;
  }
  std::cout << "uses_temper: temper " << temper::version() << " on LibTorch "
            << temper::torch_version() << '\n';
  return 0;
}
