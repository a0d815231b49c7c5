// Code that is kept for a backward, when what it refers to is gone.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "temper/temper.h"

namespace {

using temper::CompileOptions;
using torch::Tensor;
namespace detail = temper::detail;

constexpr const char* kGone =
    "temper: cannot run a backward pass: the compiled function or module that "
    "it belongs to is gone, and with it what it refers to. Keep it alive until "
    "the last backward; a module in a holder or std::shared_ptr is kept.";

// Runs kept code; its error, or "right" if it doubles its argument.
template <class Kept>
std::string run(Kept& kept) {
  const auto x = torch::rand({3});
  try {
    return kept(x).equal(x * 2) ? "right" : "wrong";
  } catch (const temper::Error& error) {
    return error.what_without_backtrace();
  }
}

// Keeps `f` as a call does, before and after the compiled function goes.
template <class F>
std::pair<std::string, std::string> before_and_after(F f) {
  auto box = std::make_shared<detail::FunctionBox<F>>(
      std::move(f), CompileOptions(), std::vector<detail::Watched>());
  auto kept = detail::FunctionTarget<F>{box.get()}.keep(box->site);
  const auto before = run(kept);
  box.reset();
  return {before, run(kept)};
}

TEST(CodeGoneTest, FunctionsThatCaptureSaySo) {
  const auto two = torch::full({1}, 2.0);
  const auto copied =
      before_and_after([two](const Tensor& x) { return x * two; });
  EXPECT_EQ(copied.first, "right");
  EXPECT_EQ(copied.second, kGone);
  const auto moved = before_and_after(
      [n = std::make_unique<int>(2)](const Tensor& x) { return x * *n; });
  EXPECT_EQ(moved.first, "right");
  EXPECT_EQ(moved.second, kGone);
}

TEST(CodeGoneTest, FunctionsWithoutCapturesRun) {
  const auto plain = before_and_after([](const Tensor& x) { return x * 2; });
  EXPECT_EQ(plain.first, "right");
  EXPECT_EQ(plain.second, "right");
}

struct DoubleImpl : temper::Module<DoubleImpl> {
  void reset() override {}
  Tensor forward(const Tensor& x) {
    return x * 2;
  }
};
TEMPER_MODULE(Double);

TEST(CodeGoneTest, ModulesThatNobodySharesSaySo) {
  auto net = std::make_unique<DoubleImpl>();
  net->compile();
  auto kept = detail::ForwardOf<DoubleImpl>{net.get()}.keep(
      *net->temper_state().site());
  EXPECT_EQ(run(kept), "right");
  net.reset();
  EXPECT_EQ(run(kept), kGone);
}

TEST(CodeGoneTest, ModulesInHoldersAreKept) {
  Double net;
  net->compile();
  auto kept = detail::ForwardOf<DoubleImpl>{net.get()}.keep(
      *net->temper_state().site());
  net = nullptr;
  EXPECT_EQ(run(kept), "right");
}

} // namespace
