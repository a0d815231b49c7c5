// How containers and structs are taken apart.
#pragma once

#include <boost/pfr/core.hpp>
#include <boost/pfr/tuple_size.hpp>
#include <c10/util/ArrayRef.h>
#include <c10/util/OptionalArrayRef.h>
#include <c10/util/SmallVector.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/rnn.h>
#include <torch/ordered_dict.h>

#include <array>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <typeinfo>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include <temper/detail/codecs.h>

namespace temper::detail {

template <class... T>
struct AllOf {
  static constexpr bool kFlattens = (true && ... && Codec<T>::kFlattens);
  static constexpr bool kRefills = (true && ... && Codec<T>::kRefills);
};

template <class T>
struct Codec<std::optional<T>> : AllOf<T> {
  static void flatten(const std::optional<T>& value, Sink& sink) {
    sink.bits(value.has_value());
    if (value) {
      Codec<T>::flatten(*value, sink);
    }
  }
  static void refill(std::optional<T>& value, Source& source) {
    if (value) {
      Codec<T>::refill(*value, source);
    }
  }
};

template <class... T>
struct Codec<std::variant<T...>> : AllOf<T...> {
  static void flatten(const std::variant<T...>& value, Sink& sink) {
    sink.size(value.index());
    std::visit(
        [&]<class V>(const V& held) { Codec<V>::flatten(held, sink); }, value);
  }
  static void refill(std::variant<T...>& value, Source& source) {
    std::visit(
        [&]<class V>(V& held) { Codec<V>::refill(held, source); }, value);
  }
};

template <class A, class B>
struct Codec<std::pair<A, B>>
    : AllOf<std::remove_const_t<A>, std::remove_const_t<B>> {
  static void flatten(const std::pair<A, B>& value, Sink& sink) {
    detail::flatten(value.first, sink);
    detail::flatten(value.second, sink);
  }
  static void refill(std::pair<A, B>& value, Source& source) {
    detail::refill(value.first, source);
    detail::refill(value.second, source);
  }
};

template <class... T>
struct Codec<std::tuple<T...>> : AllOf<T...> {
  static void flatten(const std::tuple<T...>& value, Sink& sink) {
    std::apply(
        [&](const auto&... item) { (detail::flatten(item, sink), ...); },
        value);
  }
  static void refill(std::tuple<T...>& value, Source& source) {
    std::apply(
        [&](auto&... item) { (detail::refill(item, source), ...); }, value);
  }
};

/// The base of codecs of what can be walked in order.
template <class C, class T, bool kFixedSize = false>
struct InOrder : AllOf<T> {
  static void flatten(const C& value, Sink& sink) {
    if constexpr (!kFixedSize) {
      sink.size(value.size());
    }
    for (const auto& item : value) {
      if constexpr (std::is_reference_v<decltype(*std::begin(value))>) {
        detail::flatten<T>(item, sink);
      } else { // An element of a std::vector<bool>, a c10::List.
        detail::flatten_temporary<T>(item, sink);
      }
    }
  }
  static void refill(C& value, Source& source) {
    if constexpr (!std::is_base_of_v<NoTensors, Codec<T>>) {
      for (auto& item : value) {
        detail::refill<T>(item, source);
      }
    }
  }
};

template <class T, size_t N>
struct Codec<std::array<T, N>> : InOrder<std::array<T, N>, T, true> {};
template <class T>
struct Codec<std::vector<T>> : InOrder<std::vector<T>, T> {};
template <class T>
struct Codec<std::deque<T>> : InOrder<std::deque<T>, T> {};
template <class T>
struct Codec<std::list<T>> : InOrder<std::list<T>, T> {};
template <class T, unsigned N>
struct Codec<c10::SmallVector<T, N>> : InOrder<c10::SmallVector<T, N>, T> {};
template <class T, class C>
struct Codec<std::set<T, C>> : InOrder<std::set<T, C>, T> {
  static constexpr bool kRefills = std::is_base_of_v<NoTensors, Codec<T>>;
};
template <class T, class C>
struct Codec<std::multiset<T, C>> : InOrder<std::multiset<T, C>, T> {
  static constexpr bool kRefills = std::is_base_of_v<NoTensors, Codec<T>>;
};

// Views of memory that belongs to somebody else. As arguments they are kept
// by what `Hold` makes of them; they cannot be results.
template <class T>
struct Codec<c10::ArrayRef<T>> : InOrder<c10::ArrayRef<T>, T> {
  static constexpr bool kRefills = false;
};
template <class T>
struct Codec<std::span<T>> : InOrder<std::span<T>, std::remove_const_t<T>> {
  static constexpr bool kRefills = false;
};
template <class T>
struct Codec<c10::OptionalArrayRef<T>> {
  static constexpr bool kFlattens = Codec<T>::kFlattens;
  static constexpr bool kRefills = false;
  static void flatten(const c10::OptionalArrayRef<T>& value, Sink& sink) {
    sink.bits(value.has_value());
    if (value) {
      detail::flatten(*value, sink);
    }
  }
};

/// A key, which has to be told by its bytes: results can't be given other keys.
template <class K>
std::string bytes_of_key(const K& key, Sink& sink) {
  std::string bytes;
  std::vector<at::Tensor> tensors;
  Sink own(tensors, bytes);
  detail::flatten(key, own);
  if (!own.rejected().empty()) {
    sink.reject(own.rejected());
  } else if (!tensors.empty()) {
    sink.reject("a map or set whose keys hold tensors");
  }
  return bytes;
}

template <class Map, class K, class V>
struct OfMap : AllOf<K, V> {
  static void flatten(const Map& value, Sink& sink) {
    sink.size(value.size());
    for (const auto& [key, item] : value) {
      sink.text(bytes_of_key(key, sink));
      detail::flatten(item, sink);
    }
  }
  static void refill(Map& value, Source& source) {
    for (auto& entry : value) {
      detail::refill(entry.second, source);
    }
  }
};
template <class K, class V, class C>
struct Codec<std::map<K, V, C>> : OfMap<std::map<K, V, C>, K, V> {};
template <class K, class V, class C>
struct Codec<std::multimap<K, V, C>> : OfMap<std::multimap<K, V, C>, K, V> {};

/// In the order in which they are walked, which code may depend on. It stays
/// the same in copies.
template <class K, class V, class H, class E>
struct Codec<std::unordered_map<K, V, H, E>>
    : OfMap<std::unordered_map<K, V, H, E>, K, V> {};
template <class T, class H, class E>
struct Codec<std::unordered_set<T, H, E>>
    : InOrder<std::unordered_set<T, H, E>, T> {
  static constexpr bool kFlattens = std::is_base_of_v<NoTensors, Codec<T>>;
  static constexpr bool kRefills = kFlattens;
};

template <class K, class V>
struct Codec<torch::OrderedDict<K, V>> : AllOf<K, V> {
  using Dict = torch::OrderedDict<K, V>;
  static void flatten(const Dict& value, Sink& sink) {
    sink.size(value.size());
    for (const auto& item : value) {
      sink.text(bytes_of_key(item.key(), sink));
      detail::flatten(item.value(), sink);
    }
  }
  static void refill(Dict& value, Source& source) {
    for (auto& item : value) {
      detail::refill(item.value(), source);
    }
  }
};

template <>
struct Codec<torch::nn::utils::rnn::PackedSequence> : BothWays {
  using Packed = torch::nn::utils::rnn::PackedSequence;
  static void flatten(const Packed& value, Sink& sink) {
    sink.tensor(value.data());
    sink.tensor(value.batch_sizes());
    sink.tensor(value.sorted_indices());
    sink.tensor(value.unsorted_indices());
  }
  TEMPER_API static void refill(Packed& value, Source& source);
};

/// A shared or unique object, by what it holds: for declared fields only.
template <class P, class T>
struct Pointed {
  static constexpr bool kFlattens = Codec<std::remove_const_t<T>>::kFlattens;
  static constexpr bool kRefills = false;
  static void flatten(const P& value, Sink& sink) {
    sink.bits(value != nullptr);
    if (value) {
      detail::flatten<std::remove_const_t<T>>(*value, sink);
    }
  }
};
template <class T>
struct Codec<std::shared_ptr<T>> : Pointed<std::shared_ptr<T>, T> {};
template <class T>
struct Codec<std::unique_ptr<T>> : Pointed<std::unique_ptr<T>, T> {};

/// A class whose members TEMPER_FIELDS lists.
template <class T>
concept HasFields = requires {
  typename T::TemperFields;
}
&&!std::is_base_of_v<torch::nn::Module, T>;

/// Asserts that a listed member has what its class is used for.
template <bool kHasIt>
struct CheckListed {
  static_assert(
      kHasIt,
      "temper: a class with TEMPER_FIELDS lists a member that holds something "
      "other than tensors, numbers, strings, optionals, containers and plain "
      "structs of those. In arguments and results there can be no modules and "
      "pointers either; these are state.");
};

/// A listed member. Of a plain struct's members Boost.PFR can't tell arrays.
template <class T>
struct MemberCodec : Codec<T> {};
template <class T, size_t N>
struct MemberCodec<T[N]> : InOrder<T[N], T, true> {};

template <HasFields T>
struct Codec<T> {
  static constexpr bool kFlattens = true;
  static constexpr bool kRefills = std::is_copy_constructible_v<T>;
  static void flatten(const T& value, Sink& sink) {
    if constexpr (std::is_polymorphic_v<T>) {
      // Behind a pointer or reference. What it is and has besides is not told.
      if (typeid(value) != typeid(T)) {
        sink.reject(
            "an object of a class derived from the one that is declared");
      }
    }
    value.temper_each_field([&]<class F>(const char*, const F& field) {
      static_cast<void>(CheckListed<MemberCodec<F>::kFlattens>());
      if constexpr (MemberCodec<F>::kFlattens) {
        MemberCodec<F>::flatten(field, sink);
      }
    });
  }
  static void refill(T& value, Source& source) {
    value.temper_each_field([&]<class F>(const char*, F& field) {
      static_cast<void>(CheckListed<MemberCodec<F>::kRefills>());
      if constexpr (MemberCodec<F>::kRefills) {
        MemberCodec<F>::refill(field, source);
      }
    });
  }
};

/// Becomes any base of T.
template <class T>
struct AnyBase {
  template <class B>
  requires(std::is_base_of_v<B, T> && !std::is_same_v<B, T>) operator B() const;
};
/// True iff the aggregate T begins with a base, of which Boost.PFR can't tell
/// the members.
template <class T>
constexpr bool kHasBase = requires {
  T{AnyBase<T>{}};
}
&&!requires {
  T{CheckListed<true>{}};
};

template <class T>
concept PlainStruct =
    std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T> &&
    !HasFields<T> && !kHasBase<T>;

template <class T>
using FieldIndices = std::make_index_sequence<boost::pfr::tuple_size_v<T>>;

template <class T, class Indices>
struct StructCodec;
template <class T, size_t... I>
struct StructCodec<T, std::index_sequence<I...>>
    : AllOf<boost::pfr::tuple_element_t<I, T>...> {};

/// True iff U is T, or a template of which T is an argument.
template <class T, class U>
constexpr bool kMentions = std::is_same_v<T, U>;
template <class T, template <class...> class C, class... A>
constexpr bool kMentions<T, C<A...>> =
    (std::is_same_v<T, C<A...>> || ... || kMentions<T, A>);
template <class T, template <class, auto> class C, class A, auto N>
constexpr bool kMentions<T, C<A, N>> = kMentions<T, A>;

/// True iff a field of T holds T again (the children of a tree), so that what
/// can be done with T can't be read off its fields.
template <class T, class Indices>
constexpr bool kHoldsItself = false;
template <class T, size_t... I>
constexpr bool kHoldsItself<T, std::index_sequence<I...>> =
    (false || ... || kMentions<T, boost::pfr::tuple_element_t<I, T>>);

template <PlainStruct T>
struct Codec<T> : std::conditional_t<
                      kHoldsItself<T, FieldIndices<T>>,
                      Codec<void>,
                      StructCodec<T, FieldIndices<T>>> {
  static constexpr bool kOfStruct = true;
  static void flatten(const T& value, Sink& sink) {
    boost::pfr::for_each_field(
        value, [&](const auto& field) { detail::flatten(field, sink); });
  }
  static void refill(T& value, Source& source) {
    boost::pfr::for_each_field(
        value, [&](auto& field) { detail::refill(field, source); });
  }
};

/// True iff a T may hold a TorchScript list or dict, which copies share.
template <class T>
constexpr bool kHasIValues = kMentions<c10::IValue, T>;
template <class T, class Indices>
constexpr bool kFieldHasIValues = false;
template <class T, size_t... I>
constexpr bool kFieldHasIValues<T, std::index_sequence<I...>> =
    (false || ... || kHasIValues<boost::pfr::tuple_element_t<I, T>>);
template <class T>
requires Codec<T>::kOfStruct constexpr bool kHasIValues<T> =
    kFieldHasIValues<T, FieldIndices<T>>;

/// Types whose value is their type: std::monostate, std::nullopt_t, tags.
template <class T>
requires(std::is_empty_v<T>&& std::is_trivially_copyable_v<T> && !requires {
  &T::operator();
}) struct Codec<T> : NoTensors {
  static void flatten(const T&, Sink&) {}
};

} // namespace temper::detail
