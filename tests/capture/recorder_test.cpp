// What a recorded call says: ops, operands, origins, writes, and why a call
// can't be recorded.
#include "capture/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <stdexcept>
#include <thread>

#include "captures.h"
#include "support/raw_builder.h"

namespace temper::capture {
namespace {

using graph::Dim;
using graph::kNoValue;
using graph::Operand;
using graph::Role;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RecorderTest : public testing::Test {
 protected:
  RecorderTest() {
    torch::manual_seed(1);
  }
};

// The recorded graph, run on these inputs, gives what eager gives.
void expect_replays(
    const Code& code,
    const Captured& captured,
    const Tensors& arguments,
    const Watched& watched = {}) {
  ASSERT_EQ(captured.reason(), "");
  const auto& trace = captured.trace();
  Tensors inputs;
  auto eager = copies(arguments);
  for (const auto& binding : trace.bindings) {
    inputs.push_back(
        binding.argument >= 0
            ? arguments[static_cast<size_t>(binding.argument)].detach().clone()
            : at::Tensor());
    for (const auto& [name, tensor] : watched) {
      if (binding.watched == tensor.unsafeGetTensorImpl()) {
        inputs.back() = tensor.detach().clone();
      }
    }
  }
  at::NoGradGuard no_grad;
  const auto replayed = support::run_raw(trace.graph, inputs);
  const auto expected = code(eager);
  ASSERT_EQ(expected.size(), captured.plans.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto& plan = captured.plans[i];
    if (plan.kind == ResultPlan::Kind::kOutput && plan.chain.empty()) {
      EXPECT_TRUE(
          same(expected[i], replayed.outputs[static_cast<size_t>(plan.index)]))
          << "result " << i;
    }
  }
  for (size_t i = 0; i < trace.bindings.size(); ++i) {
    const auto argument = trace.bindings[i].argument;
    if (argument >= 0) {
      EXPECT_TRUE(same(
          eager[static_cast<size_t>(argument)], replayed.input_contents[i]))
          << "argument " << argument;
    }
  }
}

// Records, checks the ops, and that the graph means what eager does.
Captured expect_ops(
    const Code& code,
    const Tensors& arguments,
    const std::string& ops,
    const Watched& watched = {}) {
  const auto before = copies(arguments);
  auto captured = record(code, copies(arguments), watched);
  EXPECT_EQ(captured.reason(), "");
  EXPECT_EQ(op_names(captured.trace()), ops);
  expect_replays(code, captured, before, watched);
  return captured;
}

void expect_reason(
    const Code& code,
    const Tensors& arguments,
    const std::string& text,
    const Watched& watched = {}) {
  const auto captured = record(code, arguments, watched);
  EXPECT_THAT(captured.reason(), HasSubstr(text));
}

TEST_F(RecorderTest, OpsBelowAutogradWithTheirInputs) {
  const auto w = torch::randn({4, 3}).requires_grad_();
  const auto b = torch::randn({4}).requires_grad_();
  const auto scale = torch::randn({4});
  const auto x = torch::randn({2, 3});
  const Watched watched = {{"fc.weight", w}, {"fc.bias", b}, {"scale", scale}};
  const auto captured = expect_ops(
      [&](const Tensors& a) -> Tensors {
        return {torch::relu(torch::linear(a[0], w, b)) * scale};
      },
      {x},
      "t addmm relu mul.Tensor",
      watched);
  const auto& trace = captured.trace();
  EXPECT_EQ(input_names(trace), "fc.weight fc.bias x scale");
  const auto& inputs = trace.graph.inputs;
  EXPECT_EQ(inputs[0].role, Role::kParameter);
  EXPECT_EQ(inputs[2].role, Role::kArgument);
  EXPECT_EQ(inputs[3].role, Role::kBuffer);
  // Sizes of arguments are slots, of parameters constants, of others any.
  const auto kind = [&](graph::ValueId value) {
    return trace.graph.values[static_cast<size_t>(value)].type.sizes[0].kind;
  };
  EXPECT_EQ(kind(inputs[0].value), Dim::Kind::kConst);
  EXPECT_EQ(kind(inputs[2].value), Dim::Kind::kSlot);
  EXPECT_EQ(kind(trace.graph.outputs[0]), Dim::Kind::kAny);
}

TEST_F(RecorderTest, TheSameOpsInGradNoGradAndInferenceMode) {
  const auto w = torch::randn({3, 2, 2, 2}).requires_grad_();
  const Watched watched = {{"w", w}};
  const Code code = [&](const Tensors& a) -> Tensors {
    auto y = torch::conv2d(a[0], w).flatten(1).softmax(-1);
    return {torch::dropout(y, 0.5, true).reshape({-1})};
  };
  const Tensors arguments = {torch::randn({2, 2, 4, 4})};
  const auto with_grad = record(code, arguments, watched);
  const auto without = [&] {
    at::NoGradGuard no_grad;
    return record(code, arguments, watched);
  }();
  const auto inference = [&] {
    c10::InferenceMode mode;
    return record(code, arguments, watched);
  }();
  EXPECT_EQ(with_grad.reason(), "");
  const auto ops = op_names(with_grad.trace());
  EXPECT_THAT(ops, HasSubstr("convolution"));
  EXPECT_EQ(op_names(without.trace()), ops);
  EXPECT_EQ(op_names(inference.trace()), ops);
}

TEST_F(RecorderTest, NumbersAreSlots) {
  const auto code = [](double factor, int64_t size) {
    return [=](const Tensors& a) -> Tensors {
      return {(a[0] * factor).view({size, -1}).slice(0, 1, size)};
    };
  };
  const Tensors x = {torch::randn({12})};
  const auto one = expect_ops(code(2.5, 3), x, "mul.Scalar view slice.Tensor");
  const auto other = record(code(-0.0, 4), x);
  EXPECT_TRUE(same_skeleton(
      graph::skeleton(one.trace().graph),
      graph::skeleton(other.trace().graph)));
  EXPECT_THAT(
      one.trace().graph.slots,
      testing::Contains(testing::ResultOf(
          [](const c10::IValue& slot) { return slot.isDouble(); }, true)));
  // An integer is another kind of slot.
  const auto whole = record(
      [](const Tensors& a) -> Tensors {
        return {(a[0] * 2).view({3, -1})};
      },
      x);
  EXPECT_FALSE(same_skeleton(
      graph::skeleton(one.trace().graph),
      graph::skeleton(whole.trace().graph)));
}

TEST_F(RecorderTest, OneWrappedNumberUsedTwiceIsOneValue) {
  expect_ops(
      [](const Tensors& a) -> Tensors {
        const auto two = at::native::wrapped_scalar_tensor(2.0);
        return {a[0] * two + two};
      },
      {torch::randn({3})},
      "temper::wrapped_number mul.Tensor add.Tensor");
}

TEST_F(RecorderTest, SmallConstantsWrittenByPointerAreLiterals) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        return {a[0] + torch::tensor(std::vector<float>{1.5F, -2.0F, 3.0F})};
      },
      {torch::randn({3})},
      "empty.memory_format temper::literal add.Tensor");
  EXPECT_TRUE(captured.trace().ops[0].literal_source);
  // Another content is another graph.
  const auto other = record(
      [](const Tensors& a) -> Tensors {
        return {a[0] + torch::tensor(std::vector<float>{1.5F, -2.0F, 3.5F})};
      },
      {torch::randn({3})});
  EXPECT_FALSE(same_skeleton(
      graph::skeleton(captured.trace().graph),
      graph::skeleton(other.trace().graph)));
}

TEST_F(RecorderTest, MemoryFilledBehindTheDispatcherIsALiteralOrRefused) {
  const auto filled = [](int64_t size) {
    return [size](const Tensors& a) -> Tensors {
      auto made = torch::empty({size});
      for (int64_t i = 0; i < size; ++i) {
        made.data_ptr<float>()[i] = static_cast<float>(i);
      }
      return {a[0] * made};
    };
  };
  expect_ops(
      filled(1024),
      {torch::randn({1})},
      "empty.memory_format temper::literal mul.Tensor");
  expect_reason(
      filled(1025), {torch::randn({1})}, "filled outside of tensor ops");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {a[0] * torch::empty({4, 4}).narrow(1, 0, 1)};
      },
      {torch::randn({1})},
      "filled outside of tensor ops");
  // What an op has written, and what is only looked at, is no literal.
  expect_ops(
      [](const Tensors& a) -> Tensors {
        auto made = torch::empty({3});
        made.fill_(2.0);
        const auto sum = a[0] + made;
        return {sum + torch::zeros_like(torch::empty({3}))};
      },
      {torch::randn({3})},
      "empty.memory_format fill_.Scalar add.Tensor empty.memory_format "
      "zeros_like add.Tensor");
}

TEST_F(RecorderTest, ATensorOfUnknownOriginIsNeverAConstant) {
  const auto hidden = torch::ones({3, 5});
  expect_reason(
      [&](const Tensors& a) -> Tensors { return {a[0] + hidden}; },
      {torch::randn({3, 5})},
      "aten::add.Tensor uses a tensor of unknown origin, of sizes [3, 5]: not "
      "an argument, not reachable from a watched module, not made by an op of "
      "this call; register it as a buffer or declare it");
  // Nor one that another thread has made meanwhile.
  expect_reason(
      [](const Tensors& a) -> Tensors {
        at::Tensor made;
        std::thread([&] { made = torch::ones({3}); }).join();
        return {a[0] + made};
      },
      {torch::randn({3})},
      "unknown origin");
}

TEST_F(RecorderTest, ShallowCopiesAndExchangedMemory) {
  const auto p = torch::randn({3}).requires_grad_();
  const Watched watched = {{"p", p}};
  const auto captured = expect_ops(
      [&](const Tensors& a) -> Tensors {
        const auto y = a[0].data() * p;
        const auto z = y + p.data();
        return {z + p.detach()};
      },
      {torch::randn({3})},
      "mul.Tensor add.Tensor detach add.Tensor",
      watched);
  EXPECT_EQ(input_names(captured.trace()), "x p");
}

TEST_F(RecorderTest, AWriteThroughDataIsAWriteToTheArgument) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        a[0].data().add_(1);
        return {a[0] * a[0]};
      },
      {torch::randn({3})},
      "add_.Scalar mul.Tensor");
  ASSERT_EQ(captured.trace().graph.mutations.size(), 1);
  EXPECT_EQ(captured.trace().graph.mutations[0].input, 0);
}

TEST_F(RecorderTest, AnIntermediateGivenAnothersMemoryIsThatOne) {
  const auto captured = record(
      [](const Tensors& a) -> Tensors {
        auto y = a[0] + a[1];
        auto z = a[0] - a[1];
        y.set_data(z);
        return {y * a[0]};
      },
      {torch::randn({3}), torch::randn({3})});
  ASSERT_EQ(captured.reason(), "");
  ASSERT_EQ(op_names(captured.trace()), "add.Tensor sub.Tensor mul.Tensor");
  const auto& ops = captured.trace().graph.ops;
  EXPECT_EQ(ops[2].operands[0].value, ops[1].results[0]);
}

TEST_F(RecorderTest, ListsOptionalsAndSeveralResults) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        const auto parts = a[0].unbind(0);
        const auto joined = torch::cat({parts[1], parts[0], parts[1]});
        const auto [values, indices] = joined.max(0, true);
        return {
            torch::clamp(joined, {}, values.detach()),
            joined.gather(0, indices),
            torch::nn::functional::layer_norm(
                a[0], torch::nn::functional::LayerNormFuncOptions({3}))};
      },
      {torch::randn({2, 3})},
      "unbind.int cat max.dim detach clamp.Tensor gather "
      "native_layer_norm");
  const auto& ops = captured.trace().graph.ops;
  EXPECT_EQ(ops[0].results.size(), 2);
  EXPECT_EQ(ops[1].operands[0].kind, Operand::Kind::kValueList);
  EXPECT_THAT(
      ops[1].operands[0].values,
      ElementsAre(ops[0].results[1], ops[0].results[0], ops[0].results[1]));
  EXPECT_EQ(ops[4].operands[1].kind, Operand::Kind::kNone);
  EXPECT_EQ(ops[6].operands[2].kind, Operand::Kind::kNone);
  EXPECT_TRUE(captured.trace().ops[0].view);
  EXPECT_FALSE(captured.trace().ops[1].view);
}

TEST_F(RecorderTest, AnUndefinedElementOfAListIsNoValue) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        return {at::index_put(a[0], {c10::nullopt, a[1]}, a[2])};
      },
      {torch::randn({2, 3}), torch::tensor({2, 0}), torch::randn({2})},
      "index_put");
  EXPECT_THAT(
      captured.trace().graph.ops[0].operands[1].values,
      ElementsAre(kNoValue, testing::Ge(0)));
}

TEST_F(RecorderTest, WritesInPlaceAndThroughViews) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        auto y = a[0] + a[0];
        y.mul_(a[1]);
        y.narrow(0, 0, 1).zero_();
        a[1].copy_(y);
        return {y};
      },
      {torch::randn({3}), torch::randn({3})},
      "add.Tensor mul_.Tensor slice.Tensor zero_ copy_");
  const auto& graph = captured.trace().graph;
  const auto& multiply = graph.ops[1];
  EXPECT_THAT(multiply.results, ElementsAre(multiply.operands[0].value));
  ASSERT_EQ(multiply.writes.size(), 1);
  EXPECT_EQ(multiply.writes[0].operand, 0);
  ASSERT_EQ(graph.mutations.size(), 1);
  EXPECT_EQ(
      graph.inputs[static_cast<size_t>(graph.mutations[0].input)].name, "y");
}

TEST_F(RecorderTest, OutArguments) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        auto out = torch::empty({3});
        at::add_out(out, a[0], a[1]);
        auto second = a[1];
        at::mul_out(second, out, out);
        return {out};
      },
      {torch::randn({3}), torch::randn({3})},
      "empty.memory_format add.out mul.out");
  const auto& add = captured.trace().graph.ops[1];
  EXPECT_EQ(add.results[0], captured.trace().graph.ops[0].results[0]);
  EXPECT_EQ(captured.trace().graph.mutations.size(), 1);
  expect_reason(
      [](const Tensors& a) -> Tensors {
        auto out = torch::empty({0});
        at::add_out(out, a[0], a[0]);
        return {out};
      },
      {torch::randn({3})},
      "aten::add.out resized its output");
}

TEST_F(RecorderTest, InPlaceViewsBindTheObjectToTheNewLook) {
  const auto captured = expect_ops(
      [](const Tensors& a) -> Tensors {
        auto y = a[0] + a[0];
        y.unsqueeze_(0);
        y.transpose_(0, 1);
        return {y * y, y.squeeze_(1)};
      },
      {torch::randn({3})},
      "add.Tensor unsqueeze transpose.int mul.Tensor squeeze.dim");
  const auto& ops = captured.trace().ops;
  EXPECT_TRUE(ops[1].rebinds && ops[2].rebinds && ops[4].rebinds);
  EXPECT_FALSE(ops[0].rebinds || ops[3].rebinds);
  expect_reason(
      [](const Tensors& a) -> Tensors { return {a[0].unsqueeze_(0) + 1}; },
      {torch::randn({3})},
      "changes the sizes of an input");
}

TEST_F(RecorderTest, WritesThatSchemasDoNotTell) {
  const auto mean = torch::zeros({3});
  const auto variance = torch::ones({3});
  const Watched watched = {{"mean", mean}, {"variance", variance}};
  const auto norm = [&](bool training) {
    return [&, training](const Tensors& a) -> Tensors {
      return {torch::batch_norm(
          a[0], {}, {}, mean, variance, training, 0.1, 1e-5, false)};
    };
  };
  const Tensors x = {torch::randn({4, 3, 2})};
  EXPECT_EQ(record(norm(true), x, watched).trace().graph.mutations.size(), 2);
  EXPECT_THAT(
      record(norm(false), x, watched).trace().graph.mutations, IsEmpty());
}

TEST_F(RecorderTest, TheCallsOwnAutogradAndCustomFunctionsAreRecorded) {
  struct Twice : torch::autograd::Function<Twice> {
    static at::Tensor forward(
        torch::autograd::AutogradContext*,
        const at::Tensor& x) {
      return x + x;
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext*,
        const torch::autograd::variable_list& gradients) {
      return {gradients[0] * 2};
    }
  };
  expect_ops(
      [](const Tensors& a) -> Tensors {
        at::AutoGradMode on(true);
        const auto x = a[0].detach().requires_grad_();
        const auto y = Twice::apply(x).tanh();
        return {torch::autograd::grad({y}, {x}, {a[1]})[0]};
      },
      {torch::randn({3}), torch::randn({3})},
      "detach add.Tensor tanh tanh_backward mul.Scalar");
}

TEST_F(RecorderTest, WhatIsStillAliveAfterwardsHasEscaped) {
  at::Tensor kept;
  const auto captured = record(
      [&](const Tensors& a) -> Tensors {
        kept = a[0] + a[0];
        return {kept.neg()};
      },
      {torch::randn({3})});
  const auto& ops = captured.trace().graph.ops;
  EXPECT_THAT(
      captured.recorder->ledger().alive_values(),
      ElementsAre(ops[0].results[0], ops[1].results[0]));
}

TEST_F(RecorderTest, DataDependenceIsNamedWithOpAndPlace) {
  const auto w = torch::randn({3, 3}).requires_grad_();
  const Watched watched = {{"layers.0.weight", w}};
  const Tensors x = {torch::randn({3, 3})};
  expect_reason(
      [&](const Tensors& a) -> Tensors {
        const auto y = a[0].mm(w);
        return {y * (y.sum().item<float>() > 0 ? 1 : 2)};
      },
      x,
      "data dependence: aten::_local_scalar_dense (after 'layers.0.weight')",
      watched);
  expect_reason(
      [](const Tensors& a) -> Tensors { return {a[0].nonzero()}; },
      x,
      "data dependence: aten::nonzero");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {a[0].masked_select(a[0] > 0)};
      },
      x,
      "data dependence: aten::masked_select");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {a[0].equal(a[0].clone()) ? a[0] + 1 : a[0]};
      },
      x,
      "data dependence: aten::equal of different tensors");
  // Of a tensor with itself it is an identity.
  expect_ops(
      [](const Tensors& a) -> Tensors {
        return {a[0].equal(a[0]) ? a[0] + a[0] : a[0]};
      },
      x,
      "add.Tensor");
  // A NaN is not equal to itself.
  const auto nan = torch::full({2}, std::numeric_limits<float>::quiet_NaN());
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {a[0].equal(a[0]) ? a[0] + a[0] : a[0]};
      },
      {nan},
      "data dependence: aten::equal");
}

TEST_F(RecorderTest, WhatGraphsCannotSayIsRefusedWithTheOp) {
  const Tensors x = {torch::randn({4, 4})};
  expect_reason(
      [](const Tensors& a) -> Tensors { return {(a[0] + 1).resize_({2})}; },
      x,
      "aten::resize_ changes the sizes or the storage of its operand");
  expect_reason(
      [](const Tensors& a) -> Tensors { return {a[0].to_sparse().to_dense()}; },
      x,
      "aten::");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {a[0].as_strided({2}, {1}, 1) + 1};
      },
      x,
      "aten::as_strided of an argument counts from the start of its storage");
  expect_ops(
      [](const Tensors& a) -> Tensors {
        return {(a[0] + a[0]).as_strided({2}, {1}, 1).neg()};
      },
      x,
      "add.Tensor as_strided neg");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {torch::quantize_per_tensor(a[0], 0.1, 0, torch::kQUInt8)
                    .dequantize()};
      },
      x,
      "that is not strided");
}

TEST_F(RecorderTest, TheFirstReasonIsKeptAndTheCallGoesOn) {
  const Tensors x = {torch::arange(4.F)};
  const Code code = [](const Tensors& a) -> Tensors {
    const auto n = a[0].sum().item<int64_t>();
    auto y = a[0] + n;
    y.resize_({2});
    return {y, a[0].nonzero()};
  };
  const auto captured = record(code, x);
  EXPECT_EQ(captured.reason(), "data dependence: aten::_local_scalar_dense");
  EXPECT_TRUE(same(code(x), captured.results));
  EXPECT_EQ(op_names(captured.trace()), "sum");
}

TEST_F(RecorderTest, ExceptionsPassAndLeaveTheThreadAsItWas) {
  const auto recorder = recorder_of({});
  EXPECT_FALSE(capturing());
  EXPECT_THROW(
      {
        const InterceptScope scope(*recorder);
        EXPECT_TRUE(capturing());
        torch::ones({2}) + torch::ones({3});
      },
      c10::Error);
  EXPECT_FALSE(capturing());
  EXPECT_THAT(
      recorder->trace().unsupported,
      HasSubstr("aten::add.Tensor threw, and the call went on"));
  // Another recorder on this thread is not disturbed.
  expect_ops(
      [](const Tensors& a) -> Tensors { return {a[0] + a[0]}; },
      {torch::ones({2})},
      "add.Tensor");
  // The user's own exceptions say nothing about an op.
  const auto own = recorder_of({});
  EXPECT_THROW(
      {
        const InterceptScope scope(*own);
        torch::ones({2}).neg();
        throw std::runtime_error("mine");
      },
      std::runtime_error);
  EXPECT_FALSE(capturing());
  EXPECT_FALSE(own->failed());
}

TEST_F(RecorderTest, NestedCapturesSeeTheirOwnOps) {
  const auto outer = recorder_of({});
  const auto inner = recorder_of({});
  {
    const InterceptScope scope(*outer);
    torch::zeros({2});
    {
      const InterceptScope nested(*inner);
      EXPECT_TRUE(capturing());
      torch::ones({2});
      {
        const NoInterceptScope quiet;
        EXPECT_FALSE(capturing());
        torch::randn({2});
      }
      torch::full({2}, 3);
    }
    torch::eye(2);
    try {
      const InterceptScope nested(*inner);
      throw 1;
    } catch (int) {
    }
    EXPECT_TRUE(capturing());
    torch::arange(3);
  }
  EXPECT_FALSE(capturing());
  EXPECT_EQ(op_names(inner->trace()), "ones full");
  EXPECT_EQ(op_names(outer->trace()), "zeros eye arange");
}

TEST_F(RecorderTest, ThreadsCaptureAtTheSameTime) {
  const auto w = torch::randn({4, 4}).requires_grad_();
  const Watched watched = {{"w", w}};
  const auto call = [&](int64_t rows) {
    return record(
        [&](const Tensors& a) -> Tensors {
          auto y = a[0];
          for (int i = 0; i < 20; ++i) {
            y = torch::relu(y.mm(w)).add_(0.5).t().contiguous().t();
          }
          return {y};
        },
        {torch::ones({rows, 4})},
        watched);
  };
  const auto expected = graph::print(call(3).trace().graph);
  constexpr int kThreads = 4;
  std::atomic<int> ready = 0;
  std::atomic<bool> stop = false;
  std::vector<std::string> printed(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) {
        std::this_thread::yield();
      }
      for (int i = 0; i < 10; ++i) {
        printed[t] = graph::print(call(3).trace().graph);
      }
    });
  }
  // One that is not captured is seen by nobody.
  std::thread noise([&] {
    while (!stop) {
      torch::ones({3, 4}).mm(torch::ones({4, 4}));
      EXPECT_FALSE(capturing());
    }
  });
  for (auto& thread : threads) {
    thread.join();
  }
  stop = true;
  noise.join();
  for (const auto& text : printed) {
    EXPECT_EQ(text, expected);
  }
}

TEST_F(RecorderTest, RandomNumbersOfOpsAreRecorded) {
  const auto captured = record(
      [](const Tensors& a) -> Tensors {
        return {a[0] + torch::rand_like(a[0]), torch::dropout(a[0], 0.5, true)};
      },
      {torch::ones({5})});
  EXPECT_EQ(captured.reason(), "");
  EXPECT_TRUE(captured.trace().rng);
  EXPECT_FALSE(captured.recorder->generator_touched());
}

TEST_F(RecorderTest, RandomNumbersBehindOpsAreSeen) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const auto draw = [&] {
    at::check_generator<at::CPUGeneratorImpl>(generator)->random();
  };
  const Tensors x = {torch::ones({5})};
  const auto late = record(
      [&](const Tensors& a) -> Tensors {
        draw();
        return {a[0] + 1};
      },
      x);
  EXPECT_EQ(late.reason(), "");
  EXPECT_TRUE(late.recorder->generator_touched());
  expect_reason(
      [&](const Tensors& a) -> Tensors {
        draw();
        return {torch::rand_like(a[0])};
      },
      x,
      "random numbers were drawn or seeded outside of tensor ops");
  expect_reason(
      [&](const Tensors& a) -> Tensors {
        torch::manual_seed(5);
        return {torch::rand_like(a[0])};
      },
      x,
      "random numbers were drawn or seeded outside of tensor ops");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        return {torch::empty_like(a[0]).normal_(
            0, 1, at::detail::createCPUGenerator(3))};
      },
      x,
      "draws from a generator of its own");
}

TEST_F(RecorderTest, AGeneratorStateCanBePutBack) {
  torch::manual_seed(3);
  torch::randn({1}); // Leaves a second normal sample behind.
  const auto state = GeneratorState::current();
  EXPECT_TRUE(state == GeneratorState::current());
  const auto first = torch::randn({17});
  EXPECT_FALSE(state == GeneratorState::current());
  state.restore();
  EXPECT_TRUE(state == GeneratorState::current());
  EXPECT_TRUE(same(first, torch::randn({17})));
  // A seed alone is another state, too.
  state.restore();
  torch::manual_seed(4);
  EXPECT_FALSE(state == GeneratorState::current());
}

TEST_F(RecorderTest, ResultsAreOutputsInputsViewsOrTheSameObject) {
  using Kind = ResultPlan::Kind;
  const auto captured = record(
      [](const Tensors& a) -> Tensors {
        auto y = a[0] + 1;
        return {y, y, a[0], a[0].t(), y.t(), at::Tensor(), y[0], y.detach()};
      },
      {torch::randn({2, 2})});
  ASSERT_EQ(captured.reason(), "");
  std::vector<Kind> kinds;
  for (const auto& plan : captured.plans) {
    kinds.push_back(plan.kind);
  }
  EXPECT_THAT(
      kinds,
      ElementsAre(
          Kind::kOutput,
          Kind::kSame,
          Kind::kInput,
          Kind::kInput,
          Kind::kOutput,
          Kind::kUndefined,
          Kind::kOutput,
          Kind::kOutput));
  EXPECT_EQ(captured.plans[3].chain.size(), 1);
  EXPECT_THAT(captured.plans[2].chain, IsEmpty());
  // Views of another result are views again; the detached one is none.
  EXPECT_EQ(captured.plans[4].chain.size(), 1);
  EXPECT_EQ(captured.plans[4].index, captured.plans[0].index);
  EXPECT_EQ(captured.plans[6].index, captured.plans[0].index);
  EXPECT_THAT(captured.plans[7].chain, IsEmpty());
  EXPECT_EQ(captured.plans[7].shares_version_with, 0);
  const auto other = torch::ones({2});
  expect_reason(
      [&](const Tensors&) -> Tensors { return {other}; },
      {},
      "a result was not made by an op of this call");
  expect_reason(
      [](const Tensors& a) -> Tensors { return {a[0].data()}; },
      {torch::ones({2})},
      "a result is a shallow copy of an input");
  expect_reason(
      [](const Tensors& a) -> Tensors {
        auto y = a[0] + 1;
        return {y, y.data()};
      },
      {torch::ones({2})},
      "two results are one memory");
}

} // namespace
} // namespace temper::capture
