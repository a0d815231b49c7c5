// Random cases. A program is made by running it: an instruction that throws is
// left out (nearly always), so that most programs are valid.
#pragma once

#include <algorithm>
#include <exception>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "chooser.h"
#include "fuzz_case.h"
#include "known.h"

namespace temper::fuzz {

class Generator : private Chooser {
 public:
  explicit Generator(uint64_t seed) : Chooser(seed) {
    result_.seed = seed;
  }

  Case make() {
    make_schedule();
    make_tensors();
    run_ops();
    choose_outputs();
    return std::move(result_);
  }

 private:
  void make_schedule() {
    Schedule& s = result_.schedule;
    s.wrapper = one_of(
        {Schedule::Wrapper::kModule,
         Schedule::Wrapper::kModule,
         Schedule::Wrapper::kPlainModule,
         Schedule::Wrapper::kFunction});
    CallSpec call;
    call.batch = chance(8) ? below(3) : 3 + below(3);
    call.training = !chance(25);
    call.grad = !chance(25);
    call.factor = one_of({0.5, 1.0, -1.5});
    if (call.grad) {
      s.backward = one_of(
          {Schedule::Backward::kBackward,
           Schedule::Backward::kBackward,
           Schedule::Backward::kBackward,
           Schedule::Backward::kBackward,
           Schedule::Backward::kGrad,
           Schedule::Backward::kGrad,
           chance(50) ? Schedule::Backward::kTwice
                      : Schedule::Backward::kDouble,
           Schedule::Backward::kNone});
    }
    s.roots = chance(60) ? ~0U : static_cast<uint32_t>(random_());
    s.varying_roots = chance(7);
    s.layout = static_cast<int>(chance(60) ? 0 : below(3));
    s.step = chance(50);
    s.zero_grad = static_cast<int>(below(3));
    s.write_outputs = chance(10);
    s.calls.assign(5, call);
    CallSpec other = call;
    switch (below(8)) {
      case 0:
        other.factor += 1;
        break;
      case 1:
        other.training = !other.training;
        break;
      case 2:
        other.grad = !other.grad;
        break;
      case 3:
        other.freeze = true;
        break;
      default:
        other.batch = chance(15) ? below(2) : other.batch + 1 + below(3);
        break;
    }
    s.calls.insert(s.calls.end(), chance(50) ? 1 : 3, other);
    if (chance(40)) {
      s.calls.push_back(call);
    }
  }

  std::vector<int64_t> sizes(int64_t rank) {
    std::vector<int64_t> result;
    for (int64_t i = 0; i < rank; ++i) {
      result.push_back(i == 0 ? kBatch : one_of({kA_, kA_, kB_}));
    }
    return result;
  }

  static bool has_gradients(torch::Dtype dtype) {
    return c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  }

  TensorSpec argument(size_t index) {
    TensorSpec spec;
    spec.dtype = one_of(
        {torch::kFloat,
         torch::kFloat,
         torch::kFloat,
         torch::kFloat,
         torch::kFloat,
         common_,
         torch::kDouble,
         torch::kBFloat16,
         torch::kComplexFloat,
         torch::kLong,
         torch::kLong,
         torch::kInt,
         torch::kBool});
    spec.sizes = sizes(chance(3) ? 0 : one_of({1, 2, 2, 2, 2, 3}));
    spec.requires_grad = has_gradients(spec.dtype) && chance(35);
    spec.leaf = !spec.requires_grad || chance(75);
    if (!spec.sizes.empty() && !spec.requires_grad) {
      spec.layout = static_cast<TensorSpec::Layout>(
          chance(70) ? 0 : 1 + below(chance(20) ? 3 : 2));
    }
    if (index > 0 && chance(6)) {
      const auto other = static_cast<int>(below(static_cast<int64_t>(index)));
      const TensorSpec& o = result_.arguments[static_cast<size_t>(other)];
      if (o.same_as < 0 && o.view_of < 0) {
        spec = o;
        spec.requires_grad = false;
        (chance(50) || o.sizes.empty() ? spec.same_as : spec.view_of) = other;
      }
    }
    return spec;
  }

  void make_tensors() {
    Case& c = result_;
    const bool holds = c.schedule.wrapper != Schedule::Wrapper::kFunction;
    for (int64_t n = 1 + below(3); n-- > 0;) {
      c.arguments.push_back(argument(c.arguments.size()));
    }
    if (holds) {
      for (int64_t n = chance(85) ? 1 + below(4) : 0; n-- > 0;) {
        TensorSpec spec;
        spec.dtype = common_;
        spec.sizes = one_of<std::vector<int64_t>>(
            {{kA_, kA_}, {kB_, kA_}, {kA_, kB_}, {kA_}, {kA_}, {kB_}});
        spec.requires_grad = !chance(12);
        if (!c.parameters.empty() && chance(8)) {
          spec.same_as = 0; // Tied.
        }
        c.parameters.push_back(spec);
      }
      for (int64_t n = below(4); n-- > 0;) {
        TensorSpec spec;
        spec.dtype = chance(20) ? torch::kLong : common_;
        spec.sizes = one_of<std::vector<int64_t>>(
            {{kA_}, {kA_}, {kB_}, {kA_, kA_}, {1}, {}});
        c.buffers.push_back(spec);
      }
    }
    if (c.schedule.backward != Schedule::Backward::kNone) {
      want_leaf();
    }
    Program& p = c.program;
    p.num_arguments = static_cast<int>(c.arguments.size());
    p.num_parameters = static_cast<int>(c.parameters.size());
    p.num_buffers = static_cast<int>(c.buffers.size());
    Data data(c.seed);
    const CallSpec& call = c.schedule.calls.front();
    Tensors made;
    for (const TensorSpec& spec : c.arguments) {
      made.push_back(data.make(spec, call.batch, made));
    }
    for (const TensorSpec& spec : c.parameters) {
      registers_.push_back(data.make(spec, call.batch, registers_));
    }
    for (const TensorSpec& spec : c.buffers) {
      registers_.push_back(data.make(spec, call.batch, {}));
    }
    for (size_t i = 0; i < made.size(); ++i) {
      if (!c.arguments[i].leaf) {
        made[i] = made[i].clone();
      }
    }
    registers_.insert(registers_.begin(), made.begin(), made.end());
    p.num_registers = static_cast<int>(registers_.size());
  }

  // Something that a backward can end at.
  void want_leaf() {
    for (auto* list : {&result_.parameters, &result_.arguments}) {
      for (TensorSpec& spec : *list) {
        if (has_gradients(spec.dtype) && spec.same_as < 0 && spec.view_of < 0 &&
            spec.layout == TensorSpec::Layout::kDense) {
          spec.requires_grad = true;
          return;
        }
      }
    }
  }
  // What stops compilation by design: rare, or little would be compiled.
  static bool stops(const OpDef& op) {
    const std::string_view name = op.name;
    return name == "item" || name == "branch" || name == "masked_select" ||
        name == "one_hot" || name == "requires_grad_" || name == "detach_";
  }

  // Before `now` runs.
  bool is_known_write(const Instruction& now) const {
    const std::string_view name = all_ops()[now.op].name;
    const Tensor& self = tensor(now.operands[0]);
    if (name == "normal_" || name == "uniform_") {
      // Eager forgets the history of a view, and says so when asked for it.
      return self.is_view();
    }
    return false;
  }

  // Runs `now`; false if it threw.
  bool try_step(Instruction& now) {
    Program& p = result_.program;
    const CallSpec& call = result_.schedule.calls.front();
    const torch::AutoGradMode mode(
        now.mode == Instruction::Mode::kAsCalled
            ? call.grad
            : now.mode == Instruction::Mode::kGrad);
    Tensors results;
    try {
      results =
          all_ops()[now.op].run({now, registers_, call.factor, call.training});
    } catch (const std::exception&) {
      return false;
    }
    used_.insert(now.operands.begin(), now.operands.end());
    for (Tensor& t : results) {
      if (t.numel() > 4096) {
        return false;
      }
      now.results.push_back(p.num_registers++);
      registers_.push_back(std::move(t));
    }
    return true;
  }

  void run_ops() {
    torch::manual_seed(result_.seed);
    Instruction::Mode mode = Instruction::Mode::kAsCalled;
    const bool may_stop = chance(8);
    const int64_t length = 3 + below(14);
    for (int64_t n = 0, tries = 0; n < length && tries < 200; ++tries) {
      if (mode == Instruction::Mode::kAsCalled ? chance(4) : chance(40)) {
        mode = mode != Instruction::Mode::kAsCalled
            ? Instruction::Mode::kAsCalled
            : chance(70) ? Instruction::Mode::kNoGrad
                         : Instruction::Mode::kGrad;
      }
      Instruction now;
      now.op = any_op();
      now.mode = mode;
      if ((!may_stop && stops(all_ops()[now.op])) || !fill(now)) {
        continue;
      }
      if (is_known_write(now)) {
        continue;
      }
      if (!try_step(now)) {
        if (chance(1)) {
          result_.program.code.push_back(now);
          return; // A program that throws here.
        }
        continue;
      }
      result_.program.code.push_back(now);
      ++n;
    }
  }

  // What nothing used, mostly, and anything else: inputs, aliases, twice.
  void choose_outputs() {
    Program& p = result_.program;
    const int inputs = p.num_arguments + p.num_parameters + p.num_buffers;
    std::vector<int> ends;
    for (int reg = p.num_registers; reg-- > inputs;) {
      if (!used_.contains(reg)) {
        ends.push_back(reg);
      }
    }
    for (const int reg : ends) {
      if (p.outputs.size() < 5 && chance(80)) {
        p.outputs.push_back(reg);
      }
    }
    for (int64_t n = below(3); n-- > 0;) {
      p.outputs.insert(
          p.outputs.begin() + below(static_cast<int64_t>(p.outputs.size()) + 1),
          static_cast<int>(below(p.num_registers)));
    }
    if (p.outputs.empty()) {
      p.outputs.push_back(p.num_registers - 1);
    }
    if (result_.schedule.backward != Schedule::Backward::kNone) {
      want_root();
      if (known::kViewsBetweenUses) {
        leave_out_views();
      }
      auto& s = result_.schedule;
      if (known::kComplexBetweenResults && has_complex() && results_depend()) {
        s.backward = Schedule::Backward::kNone;
      }
      s.varying_roots &= !(known::kSumsOfUnknown && results_depend());
      s.write_outputs &= !(known::kWrittenInputs && s.varying_roots);
      s.varying_roots &=
          !(known::kWrittenInputs &&
            std::any_of(
                result_.arguments.begin(),
                result_.arguments.end(),
                [](const TensorSpec& spec) { return !spec.leaf; }));
    }
  }

  void leave_out_views() {
    const Program& p = result_.program;
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      if (tensor(p.outputs[i]).is_view()) {
        result_.schedule.roots &= ~(1U << i);
        result_.schedule.varying_roots = false;
      }
    }
  }

  bool has_complex() const {
    return std::any_of(
        registers_.begin(), registers_.end(), [](const Tensor& t) {
          return t.defined() && t.is_complex();
        });
  }

  // True iff some result is computed from another one, or may be.
  bool results_depend() const {
    if (!result_.schedule.calls.front().grad) {
      return true;
    }
    std::set<const torch::autograd::Node*> ends;
    for (const int reg : result_.program.outputs) {
      try {
        ends.insert(tensor(reg).grad_fn().get());
        if (tensor(reg).is_view()) { // The program gives its base.
          ends.insert(tensor(reg)._base().grad_fn().get());
        }
      } catch (const c10::Error&) { // Eager has no history for it, and says so.
      }
    }
    std::set<const torch::autograd::Node*> seen;
    std::vector<const torch::autograd::Node*> stack(ends.begin(), ends.end());
    while (!stack.empty()) {
      const auto* node = stack.back();
      stack.pop_back();
      if (node == nullptr || !seen.insert(node).second) {
        continue;
      }
      for (const auto& edge : node->next_edges()) {
        if (edge.is_valid() && ends.count(edge.function.get()) != 0) {
          return true;
        }
        stack.push_back(edge.function.get());
      }
    }
    return false;
  }

  // Something that a backward can start from.
  void want_root() {
    Program& p = result_.program;
    uint32_t& roots = result_.schedule.roots;
    const auto good = [&](int reg) {
      const Tensor& t = tensor(reg);
      return t.requires_grad() && !t.is_view() && t.grad_fn();
    };
    for (size_t i = 0; i < p.outputs.size(); ++i) {
      if (((roots >> i) & 1U) != 0 && good(p.outputs[i])) {
        return;
      }
    }
    const int inputs = p.num_arguments + p.num_parameters + p.num_buffers;
    for (int reg = p.num_registers; reg-- > inputs;) {
      if (good(reg)) {
        roots |= 1U << p.outputs.size();
        p.outputs.push_back(reg);
        return;
      }
    }
  }

  Case result_;
  const torch::Dtype common_ = random_() % 10 == 0 ? torch::kDouble
      : random_() % 10 == 0                        ? torch::kBFloat16
      : random_() % 15 == 0                        ? torch::kComplexFloat
                                                   : torch::kFloat;
  const int64_t kA_ = 3 + static_cast<int64_t>(random_() % 3);
  const int64_t kB_ = 2 + static_cast<int64_t>(random_() % 4);
};

} // namespace temper::fuzz
