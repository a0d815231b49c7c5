// See the header for the kinds of words.
#include "dispatch/watch_scan.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace temper::dispatch {

namespace {

constexpr size_t kWord = sizeof(uintptr_t);
// A longer vector of modules or tensors is not worth looking through.
constexpr size_t kMaxElementBytes = size_t{1} << 20;

uintptr_t load(const std::byte* address) {
  uintptr_t word = 0;
  std::memcpy(&word, address, kWord);
  return word;
}

const std::byte* align(const std::byte* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  return address + (kWord - value % kWord) % kWord;
}

// Alignment may have moved `at` past the end.
bool has_words(const std::byte* at, const std::byte* end, ptrdiff_t count) {
  return end - at >= count * static_cast<ptrdiff_t>(kWord);
}

// libstdc++'s std::string with its characters inside: {data, size, char[16]}.
// What follows the terminating zero was never written.
bool is_short_string(const std::byte* at, const std::byte* end) {
  constexpr size_t kBuffer = 16;
  if (!has_words(at, end, 4)) {
    return false;
  }
  const std::byte* buffer = at + 2 * kWord;
  const uintptr_t length = load(at + kWord);
  return load(at) == reinterpret_cast<uintptr_t>(buffer) && length < kBuffer &&
      buffer[length] == std::byte{0};
}

// libstdc++'s std::function: {captures, captures, manager, invoker}.
bool is_function(
    const std::byte* at,
    const std::byte* end,
    const KnownMemory& known) {
  return has_words(at, end, 4) &&
      known.loaded().is_code(load(at + 2 * kWord)) &&
      known.loaded().is_code(load(at + 3 * kWord));
}

// The bytes of a std::vector {begin, end, end of capacity} that isn't empty.
bool read_vector(
    const std::byte* at,
    const std::byte* end,
    std::vector<std::byte>& bytes) {
  if (!has_words(at, end, 3)) {
    return false;
  }
  const uintptr_t first = load(at);
  const uintptr_t last = load(at + kWord);
  const uintptr_t capacity = load(at + 2 * kWord);
  if (first >= last || last > capacity || last - first > kMaxElementBytes) {
    return false;
  }
  bytes.resize(last - first);
  return read_memory(first, bytes.size(), bytes.data());
}

// Kind 5. The scan of the elements is added to `scan` if all are known.
bool scan_vector(
    const std::byte* at,
    const std::byte* end,
    const KnownMemory& known,
    Scan& scan) {
  std::vector<std::byte> bytes;
  if (!read_vector(at, end, bytes) || bytes.size() % kWord != 0) {
    return false;
  }
  const auto* begin = reinterpret_cast<const std::byte*>(load(at));
  std::vector<Scan::Tensor> tensors;
  bool any = false;
  for (size_t i = 0; i < bytes.size(); i += kWord) {
    const uintptr_t word = load(bytes.data() + i);
    bool undefined = false;
    if (word == 0) {
      continue;
    }
    any = true;
    if (known.is_known(word) || known.loaded().is_constant(word)) {
      continue;
    }
    const c10::TensorImpl* impl = known.tensor(word, &undefined);
    if (impl == nullptr) {
      return false;
    }
    if (!undefined) {
      tensors.push_back({begin + i, impl});
    }
  }
  if (!any) {
    return false; // Zeros: numbers as well as null holders.
  }
  scan.elements.push_back({at, begin, bytes.size()});
  scan.tensors.insert(scan.tensors.end(), tensors.begin(), tensors.end());
  return true;
}

} // namespace

void KnownMemory::add_object(const void* begin, size_t size) {
  auto first = reinterpret_cast<uintptr_t>(begin);
  uintptr_t last = first + size;
  auto it = watched_.upper_bound(last);
  while (it != watched_.begin() && std::prev(it)->second >= first) {
    --it;
    first = std::min(first, it->first);
    last = std::max(last, it->second);
    it = watched_.erase(it);
  }
  watched_.emplace(first, last);
}

void KnownMemory::add_address(const void* address) {
  addresses_.insert(reinterpret_cast<uintptr_t>(address));
}

void KnownMemory::add_tensor(const c10::TensorImpl* impl) {
  tensors_.insert(impl);
}

bool KnownMemory::is_known(uintptr_t word) const {
  if (addresses_.count(word) != 0) {
    return true;
  }
  auto it = watched_.upper_bound(word);
  return it != watched_.begin() && word < (--it)->second;
}

const c10::TensorImpl* KnownMemory::tensor(uintptr_t word, bool* undefined)
    const {
  const auto* impl = reinterpret_cast<const c10::TensorImpl*>(word);
  if (tensors_.count(impl) != 0) {
    *undefined = false;
    return impl;
  }
  return as_tensor(word, undefined);
}

void scan_fields(
    const std::byte* begin,
    size_t size,
    const KnownMemory& known,
    Scan& scan) {
  const std::byte* end = begin + size;
  for (const std::byte* at = align(begin); has_words(at, end, 1); at += kWord) {
    const uintptr_t word = load(at);
    if (known.is_known(word)) {
      if (is_short_string(at, end)) {
        at += 3 * kWord;
      }
      continue;
    }
    if (!may_be_pointer(word) || known.loaded().is_constant(word)) {
      continue;
    }
    bool undefined = false;
    if (const auto* impl = known.tensor(word, &undefined)) {
      if (!undefined) {
        scan.tensors.push_back({at, impl});
      }
    } else if (points_to_memory(word)) {
      if (scan_vector(at, end, known, scan)) {
        at += 2 * kWord;
      } else if (scan.opaque == nullptr) {
        scan.opaque = at;
        scan.opaque_function = is_function(at, end, known);
      }
    }
  }
}

void scan_own_fields(
    const std::byte* begin,
    size_t size,
    const KnownMemory& known,
    bool holds_functions,
    Scan& scan) {
  const std::byte* end = begin + size;
  for (const std::byte* at = align(begin); has_words(at, end, 1); at += kWord) {
    if (holds_functions && is_function(at, end, known)) {
      scan_fields(at, 2 * kWord, known, scan);
      at += 3 * kWord;
      continue;
    }
    // What can be told to be no tensor without a system call.
    const uintptr_t word = load(at);
    if (!may_be_pointer(word) || known.is_known(word) ||
        known.loaded().is_constant(word)) {
      continue;
    }
    bool undefined = false;
    const c10::TensorImpl* impl = known.tensor(word, &undefined);
    if (impl != nullptr && !undefined) {
      scan.tensors.push_back({at, impl});
    }
  }
}

} // namespace temper::dispatch
