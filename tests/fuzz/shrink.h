// Makes a case that fails smaller, as long as it fails.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "fuzz_case.h"

namespace temper::fuzz {

/// `fuzz` without instruction `at`: its results become its first operand, or
/// whatever else was there. False if nothing was.
inline bool drop(Case& fuzz, size_t at) {
  Program& p = fuzz.program;
  const Instruction gone = p.code[at];
  p.code.erase(p.code.begin() + static_cast<std::ptrdiff_t>(at));
  if (gone.operands.empty()) {
    return false;
  }
  const auto replace = [&](int& reg) {
    if (std::find(gone.results.begin(), gone.results.end(), reg) !=
        gone.results.end()) {
      reg = gone.operands[0];
    }
  };
  for (Instruction& other : p.code) {
    std::for_each(other.operands.begin(), other.operands.end(), replace);
    for (Number& number : other.numbers) {
      replace(number.reg);
    }
  }
  std::for_each(p.outputs.begin(), p.outputs.end(), replace);
  return true;
}

/// The smallest case for which `fails`, found by greedy steps in `seconds`.
inline Case shrink(
    Case fuzz,
    const std::function<bool(const Case&)>& fails,
    double seconds = 10) {
  const auto start = std::chrono::steady_clock::now();
  const auto time_left = [&] {
    return std::chrono::duration<double>(
               std::chrono::steady_clock::now() - start)
               .count() < seconds;
  };
  const auto attempt = [&](Case candidate) {
    if (!time_left() || !fails(candidate)) {
      return false;
    }
    fuzz = std::move(candidate);
    return true;
  };
  bool smaller = true;
  while (smaller && time_left()) {
    smaller = false;
    for (size_t i = fuzz.program.code.size(); i-- > 0;) {
      Case candidate = fuzz;
      smaller |= drop(candidate, i) && attempt(std::move(candidate));
    }
    for (size_t i = fuzz.program.outputs.size();
         i-- > 0 && fuzz.program.outputs.size() > 1;) {
      Case candidate = fuzz;
      auto& outputs = candidate.program.outputs;
      outputs.erase(outputs.begin() + static_cast<std::ptrdiff_t>(i));
      // The gradients stay with their outputs.
      const uint32_t low = (1U << i) - 1;
      uint32_t& roots = candidate.schedule.roots;
      roots = (roots & low) | ((roots >> 1U) & ~low);
      smaller |= attempt(std::move(candidate));
    }
    for (size_t i = fuzz.schedule.calls.size();
         i-- > 0 && fuzz.schedule.calls.size() > 1;) {
      Case candidate = fuzz;
      auto& calls = candidate.schedule.calls;
      calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(i));
      smaller |= attempt(std::move(candidate));
    }
    const auto simplify = [&](const auto& change) {
      Case candidate = fuzz;
      change(candidate);
      if (text(candidate) != text(fuzz)) {
        smaller |= attempt(std::move(candidate));
      }
    };
    using Mode = Instruction::Mode;
    for (size_t i = 0; i < fuzz.program.code.size(); ++i) {
      simplify([&](Case& c) { c.program.code[i].mode = Mode::kAsCalled; });
    }
    simplify([](Case& c) { c.schedule.backward = Schedule::Backward::kNone; });
    simplify([](Case& c) {
      c.schedule.backward =
          std::min(c.schedule.backward, Schedule::Backward::kBackward);
    });
    simplify([](Case& c) { c.schedule.varying_roots = false; });
    simplify([](Case& c) { c.schedule.write_outputs = false; });
    simplify([](Case& c) { c.schedule.step = false; });
    simplify([](Case& c) { c.schedule.layout = 0; });
    simplify([](Case& c) { c.schedule.zero_grad = 1; });
    simplify([](Case& c) {
      c.schedule.wrapper =
          std::min(c.schedule.wrapper, Schedule::Wrapper::kModule);
    });
    for (size_t i = 0; i < fuzz.arguments.size(); ++i) {
      simplify(
          [&](Case& c) { c.arguments[i].layout = TensorSpec::Layout::kDense; });
      simplify([&](Case& c) { c.arguments[i].requires_grad = false; });
      simplify([&](Case& c) { c.arguments[i].leaf = true; });
    }
  }
  return fuzz;
}

} // namespace temper::fuzz
