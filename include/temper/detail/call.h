// One call of a compiled module or function: arguments to tensors and bytes,
// through the call site, and the result back.
//
// 1. `adapt` makes an argument that is not structured itself (a char array, a
//    type of its own) into the parameter's type, as the call would.
// 2. All arguments are flattened into a Frame. Where they are tensors and
//    nothing else there are no bytes at all; otherwise the bytes begin with the
//    name of the argument types, so that no two overloads have the same.
// 3. The site calls back with tensors in their places, or not at all. With the
//    caller's own tensors the code gets the caller's variables, which it may
//    reach by other ways, too (a field of its module). With others it gets
//    copies of the arguments that hold these.
// 4. What comes back is the result and, for arguments taken by reference, what
//    the code left in them, if that is something else than before.
// 5. Result and changed arguments are made from the site's tensors and a
//    prototype of the result that the code gave for such a call.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include <c10/util/SmallVector.h>

#include <temper/detail/argument.h>
#include <temper/detail/site.h>

namespace temper::detail {

/// The result of a function that has none, the change of what cannot change.
struct NoValue {};

/// What a result is rebuilt from. Behind `Values::prototype` is this base, so
/// that a wrong one is noticed.
struct PrototypeBase {
  const std::type_info* type;
};
template <class R, class Changes>
struct Prototype : PrototypeBase {
  Prototype() : PrototypeBase{&typeid(Prototype)} {}
  explicit Prototype(const R& value) : Prototype() {
    Source blank;
    detail::refill(result.emplace(value), blank);
  }
  std::optional<R> result; ///< Empty where it needs no prototype.
  Changes changes; ///< Optionals of the arguments that the code changed.
};

/// What an argument held before the code ran.
template <class T>
struct Before {
  explicit Before(const T& value) {
    Sink sink(tensors, bytes);
    detail::flatten(value, sink);
  }
  /// The value that the code left, if it is another one.
  std::optional<T> change(const T& now) const {
    const Before after(now);
    const bool same = bytes == after.bytes &&
        std::equal(tensors.begin(),
                   tensors.end(),
                   after.tensors.begin(),
                   after.tensors.end(),
                   [](const at::Tensor& a, const at::Tensor& b) {
                     return a.is_same(b);
                   });
    return same ? std::nullopt : std::optional<T>(now);
  }

  std::vector<at::Tensor> tensors;
  std::string bytes;
};
template <>
struct Before<NoValue> {
  template <class T>
  explicit Before(const T&) {}
  template <class T>
  NoValue change(const T&) const {
    return {};
  }
};

/// The lists and dicts of TorchScript in an argument, which a copy shares, so
/// that the caller sees what the code does to them.
template <class T, bool = kHasIValues<T>>
struct SharedBefore {
  template <class Held>
  explicit SharedBefore(const Held&) {}
  bool changed() const {
    return false;
  }
};
template <class T>
struct SharedBefore<T, true> {
  explicit SharedBefore(const T& value) : copy(value), before(value) {}
  bool changed() const {
    return before.change(copy).has_value();
  }

  T copy;
  Before<T> before;
};

template <class T>
constexpr bool kIsWritableSpan = false;
template <class T>
constexpr bool kIsWritableSpan<std::span<T>> = !std::is_const_v<T>;

/// A call of `Target`, whose parameters are `Parameters`, with `Args`
/// (forwarding references, adapted). A Target has
///   operator()(Args...);
///   keep(site);          // itself, for calls after this one
///   static kGeneric;     // true iff argument types don't say what is called
template <class Target, class Parameters, class Indices, class... Args>
class BoundCall;

template <class Target, class Parameters, size_t... I, class... Args>
class BoundCall<Target, Parameters, std::index_sequence<I...>, Args...> {
 public:
  using Returned = decltype(std::declval<Target&>()(std::declval<Args>()...));

  BoundCall(Target& target, Args&&... args)
      : target_(target), args_(static_cast<Args&&>(args)...) {}

  Returned run(Site& site) {
    if constexpr (std::is_reference_v<Returned>) {
      site.run_plainly("the result is a reference; return it by value");
      return plainly();
    } else {
      if constexpr ((false || ... || kIsWritableSpan<Plain<I>>)) {
        site.run_plainly(
            "an argument is a span of what the code may write; take the "
            "container by reference, or a span of const");
        return plainly();
      }
      static_cast<void>(CheckStructured<Result, true>{});
      Frame frame;
      Sink sink(frame.tensors(), frame.structure());
      if constexpr (!kPlain) {
        const char* const name = typeid(SignatureTypes).name();
        frame.structure().append(name, std::strlen(name) + 1);
      }
      if (kAnyChanges && sizeof...(I) > 1 && overlaps()) {
        site.run_plainly(
            "a variable that is taken by reference is given twice");
        return plainly();
      }
      // Plain tensors are moved from, and never rejected.
      (put<I>(sink), ...);
      if (!sink.rejected().empty()) {
        site.run_plainly("an argument holds " + sink.rejected());
        return plainly();
      }
      return finish(through(site, frame));
    }
  }

 private:
  template <size_t J>
  using Arg = std::tuple_element_t<J, std::tuple<Args...>>;
  template <size_t J>
  using Plain = std::remove_cvref_t<Arg<J>>;
  template <size_t J>
  using Param = ParamAt<Parameters, J>;
  template <size_t J>
  static constexpr bool kChanges = kInOut<Param<J>, Arg<J>>;
  template <size_t J>
  static constexpr bool kIsVariable =
      std::is_lvalue_reference_v<Arg<J>>&& Hold<Plain<J>>::kSame;
  /// An optional of the argument where it can change.
  template <size_t J>
  using Change =
      std::conditional_t<kChanges<J>, std::optional<Plain<J>>, NoValue>;
  template <size_t J>
  using BeforeOf = Before<std::conditional_t<kChanges<J>, Plain<J>, NoValue>>;

  using SignatureTypes = std::tuple<Target, std::add_pointer_t<Args>...>;
  using Held = std::tuple<typename Hold<std::remove_cvref_t<Args>>::Held...>;
  using Own = std::tuple<Args&&...>; ///< The caller's.
  using Changes = std::tuple<Change<I>...>;
  using Result = std::conditional_t<
      std::is_void_v<Returned>,
      NoValue,
      std::remove_cvref_t<Returned>>;
  using Proto = Prototype<Result, Changes>;

  static constexpr bool kPlain = Parameters::kKnown && !Target::kGeneric &&
      (true && ... && std::is_same_v<std::remove_cvref_t<Args>, at::Tensor>);
  static constexpr bool kAnyChanges = (false || ... || kChanges<I>);
  /// A result that needs no prototype.
  static constexpr bool kPlainResult =
      std::is_void_v<Returned> || std::is_same_v<Result, at::Tensor>;

  template <size_t J>
  void put(Sink& sink) {
    if constexpr (kPlain && kConsumed<Param<J>, Arg<J>>) {
      sink.tensor(std::move(std::get<J>(args_)));
    } else {
      detail::flatten<Plain<J>>(std::get<J>(args_), sink);
    }
  }

  /// True iff an argument that the code may assign to shares an object with
  /// another one (it is that one, a member of it, an element of its vector):
  /// copies would not show the one change in the other.
  bool overlaps() const {
    struct Part {
      Extent extent;
      size_t argument;
    };
    constexpr std::array<bool, sizeof...(I)> kMayChange{kChanges<I>...};
    c10::SmallVector<Part, 8> parts;
    // Not used by a function without parameters.
    [[maybe_unused]] const auto add =
        [&]<size_t J>(std::integral_constant<size_t, J>) {
          const auto& argument = std::get<J>(args_);
          if constexpr (
              std::is_same_v<Plain<J>, at::Tensor> ||
              std::is_arithmetic_v<Plain<J>>) {
            const auto* begin =
                reinterpret_cast<const char*>(std::addressof(argument));
            parts.push_back({{begin, begin + sizeof(argument)}, J});
          } else {
            std::vector<at::Tensor> tensors;
            std::string bytes;
            std::vector<Extent> extents;
            Sink sink(tensors, bytes);
            sink.note_extents(extents);
            detail::flatten<Plain<J>>(argument, sink);
            for (const Extent& extent : extents) {
              parts.push_back({extent, J});
            }
          }
        };
    (add(std::integral_constant<size_t, I>()), ...);
    std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.extent.begin < b.extent.begin;
    });
    std::array<const char*, sizeof...(I)> ends{}; // By argument, until here.
    for (const Part& part : parts) {
      for (size_t other = 0; other < ends.size(); ++other) {
        if (other != part.argument && ends[other] > part.extent.begin &&
            (kMayChange[other] || kMayChange[part.argument])) {
          return true;
        }
      }
      ends[part.argument] = std::max(ends[part.argument], part.extent.end);
    }
    return false;
  }

  Returned plainly() {
    return target_(static_cast<Args&&>(std::get<I>(args_))...);
  }

  /// Copies of the arguments; which tensors they hold is of no account.
  Held hold() const {
    return Held(Hold<Plain<I>>::keep(std::get<I>(args_))...);
  }

  Values through(Site& site, const Frame& frame) {
    std::optional<Changes> left; // By code that threw.
    const auto code = [&](const std::vector<at::Tensor>& given) {
      left.reset();
      Held held = hold();
      ran_on_own_ = &given == &frame.tensors();
      return call(target_, held, given, &left, ran_on_own_ ? &args_ : nullptr);
    };
    const auto make_rerun = [&]() -> Rerun {
      return [callee = target_.keep(site), prototype = prototype_of(hold())](
                 const std::vector<at::Tensor>& given) mutable {
        Held held = prototype;
        return call(callee, held, given, nullptr, nullptr);
      };
    };
    if constexpr (kAnyChanges) {
      try {
        return site.call(frame, code, make_rerun);
      } catch (...) {
        if (left) {
          (assign<I>(std::get<I>(*left)), ...);
        }
        throw;
      }
    } else {
      return site.call(frame, code, make_rerun);
    }
  }

  /// Runs the code on `held` with the tensors `given` in it, and on the
  /// caller's variables if `own` is not null. `left` gets what code that throws
  /// has done to the arguments.
  template <class Callee>
  static Values call(
      Callee& callee,
      Held& held,
      const std::vector<at::Tensor>& given,
      std::optional<Changes>* left,
      Own* own) {
    Source source(given);
    (detail::refill(std::get<I>(held), source), ...);
    if (own != nullptr) {
      (share<I>(held, *own), ...);
    }
    const std::tuple<BeforeOf<I>...> before{
        BeforeOf<I>(variable<I>(held, own))...};
    const std::tuple<SharedBefore<std::remove_cvref_t<Args>>...> shared{
        SharedBefore<std::remove_cvref_t<Args>>(variable<I>(held, own))...};
    const auto changes = [&] {
      return Changes(std::get<I>(before).change(variable<I>(held, own))...);
    };

    Values values;
    Sink sink(values.tensors, values.structure);
    std::shared_ptr<Proto> proto;
    try {
      if constexpr (std::is_void_v<Returned>) {
        callee(pass<I>(held, own)...);
      } else {
        const Result result = callee(pass<I>(held, own)...);
        detail::flatten(result, sink);
        if constexpr (!kPlainResult) {
          proto = std::make_shared<Proto>(result);
        }
      }
    } catch (...) {
      if constexpr (kAnyChanges) {
        if (left != nullptr) {
          left->emplace(changes());
        }
      }
      throw;
    }
    if constexpr (kAnyChanges) {
      const Changes changed = changes();
      if ((false || ... || is_set(std::get<I>(changed)))) {
        if (!proto) {
          proto = std::make_shared<Proto>();
        }
        (record(std::get<I>(changed), sink, std::get<I>(proto->changes)), ...);
      }
    }
    values.prototype = std::shared_ptr<const PrototypeBase>(std::move(proto));
    if (!sink.rejected().empty()) {
      values.rejected = "the result holds " + sink.rejected();
    } else if ((false || ... || std::get<I>(shared).changed())) {
      values.rejected =
          "the call changes a TorchScript list or dict that it was given";
    }
    return values;
  }

  /// The caller's own TorchScript lists and dicts into what is held.
  template <size_t J>
  static void share(Held& held, Own& own) {
    if constexpr (
        kHasIValues<Plain<J>> &&
        std::is_copy_assignable_v<std::tuple_element_t<J, Held>>) {
      std::get<J>(held) = Hold<Plain<J>>::keep(std::get<J>(own));
    }
  }

  /// The caller's variable, if it is one and may be used; else what is held.
  template <size_t J>
  static auto& variable(Held& held, Own* own) {
    if constexpr (kIsVariable<J>) {
      // The code gets it as the caller passes it: const if that is const.
      return own != nullptr ? const_cast<Plain<J>&>(std::get<J>(*own))
                            : std::get<J>(held);
    } else {
      return std::get<J>(held);
    }
  }

  template <size_t J>
  static decltype(auto) pass(Held& held, Own* own) {
    if constexpr (Hold<Plain<J>>::kSame) {
      return static_cast<Arg<J>&&>(variable<J>(held, own));
    } else {
      return Hold<Plain<J>>::pass(std::get<J>(held));
    }
  }

  static bool is_set(const NoValue&) {
    return false;
  }
  template <class T>
  static bool is_set(const std::optional<T>& change) {
    return change.has_value();
  }

  static void record(const NoValue&, Sink&, NoValue&) {}
  template <class T>
  static void record(
      const std::optional<T>& change,
      Sink& sink,
      std::optional<T>& prototype) {
    detail::flatten(change, sink);
    prototype = prototype_of(change);
  }

  template <size_t J>
  void assign(Change<J>& change) {
    if constexpr (kChanges<J>) {
      // The caller's own variable has it, and there may be references into it.
      if (change && !(ran_on_own_ && kIsVariable<J>)) {
        std::get<J>(args_) = std::move(*change);
      }
    }
  }

  /// The result out of `values`, and the changed arguments into their places.
  Returned finish(Values values) {
    const auto* const base =
        static_cast<const PrototypeBase*>(values.prototype.get());
    if (base == nullptr) {
      if constexpr (std::is_void_v<Returned>) {
        return;
      } else if constexpr (kPlainResult) {
        Source(values.tensors).expect(1);
        return std::move(values.tensors.front());
      } else {
        throw_wrong_prototype(typeid(Proto));
      }
    }
    if (*base->type != typeid(Proto)) {
      throw_wrong_prototype(typeid(Proto));
    }
    const Proto& proto = static_cast<const Proto&>(*base);
    Source source(values.tensors);
    if constexpr (kPlainResult) {
      Result result{};
      detail::refill(result, source);
      assign_all(proto, source);
      if constexpr (!std::is_void_v<Returned>) {
        return result;
      }
    } else {
      Result result = unflatten(proto.result.value(), source);
      assign_all(proto, source);
      return result;
    }
  }

  void assign_all(const Proto& proto, Source& source) {
    if constexpr (kAnyChanges) {
      Changes changes = proto.changes;
      (refill_change(std::get<I>(changes), source), ...);
      (assign<I>(std::get<I>(changes)), ...);
    }
  }

  static void refill_change(NoValue&, Source&) {}
  template <class T>
  static void refill_change(std::optional<T>& change, Source& source) {
    detail::refill(change, source);
  }

  Target& target_;
  Own args_;
  bool ran_on_own_ = false; ///< The last time that the code ran here.
};

template <class Parameters, class Target, class... Args>
decltype(auto) call_adapted(Site& site, Target& target, Args&&... args) {
  return BoundCall<
             Target,
             Parameters,
             std::index_sequence_for<Args...>,
             Args...>(target, std::forward<Args>(args)...)
      .run(site);
}

template <class Parameters, class Target, size_t... I, class... Args>
decltype(auto) call_indexed(
    Site& site,
    Target& target,
    std::index_sequence<I...>,
    Args&&... args) {
  return call_adapted<Parameters>(
      site, target, adapt<ParamAt<Parameters, I>, Args>(args)...);
}

/// Calls `target`, whose parameters are `Parameters`, through `site`.
template <class Parameters, class Target, class... Args>
decltype(auto) call(Site& site, Target& target, Args&&... args) {
  return call_indexed<Parameters>(
      site,
      target,
      std::index_sequence_for<Args...>{},
      std::forward<Args>(args)...);
}

} // namespace temper::detail
