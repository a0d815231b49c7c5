// A user's program against an installed temper: headers, library and LibTorch
// fit together, and parallel loops in the user's own code are parallel.
#include <cstring>
#include <iostream>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/version.h>

#include <temper/version.h>

int main() {
  if (std::strcmp(temper::torch_version(), TORCH_VERSION) != 0) {
    std::cerr << "temper was built against LibTorch " << temper::torch_version()
              << ", this program against " << TORCH_VERSION << '\n';
    return 1;
  }
  if (at::ones({2, 3}).sum().item<double>() != 6.0) {
    std::cerr << "LibTorch cannot add\n";
    return 1;
  }
#ifndef _OPENMP
  std::cerr << "at::parallel_for is serial here: no -fopenmp\n";
  return 1;
#endif
  std::cout << "temper " << temper::version() << " on LibTorch "
            << temper::torch_version() << '\n';
  return 0;
}
