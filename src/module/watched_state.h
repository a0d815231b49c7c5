// From what the public headers say of a site's state to a Watch.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include "dispatch/watch.h"
#include "temper/detail/site.h"

namespace temper::module {

/// Fills a Watch.
class WatchedState final : public detail::State {
 public:
  explicit WatchedState(dispatch::Watch& watch) : watch_(watch) {}

  void module(torch::nn::Module& root) override;
  void bytes(const void* begin, size_t size, std::string name) override;
  void content(
      const void* begin,
      size_t size,
      std::string name,
      detail::FlattenAt flatten) override;
  void ignore(const void* begin, size_t size) override;
  void known(const void* address) override;

 private:
  dispatch::Watch& watch_;
};

} // namespace temper::module
