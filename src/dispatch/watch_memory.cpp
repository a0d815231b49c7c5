// Safe reads by a system call that reports bad addresses instead of faulting.
#include "dispatch/watch_memory.h"

#include <c10/core/UndefinedTensorImpl.h>
#include <link.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "capture/shadow_tensor.h"

namespace temper::dispatch {

namespace {

// Where the sanitizers' shadow memory lies, which no pointer of a program
// points to, but pairs of small integers would.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uintptr_t kLowest = uintptr_t{1} << 44;
#else
constexpr uintptr_t kLowest = uintptr_t{1} << 16; // Below: never mapped.
#endif
constexpr uintptr_t kHighest = uintptr_t{1} << 47;

// Where process_vm_readv is not allowed: a write to a pipe checks its source
// address as well.
bool read_through_pipe(uintptr_t address, size_t size, void* to) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) {
    return false;
  }
  constexpr size_t kChunk = 4096; // Fits into every pipe.
  bool good = true;
  for (size_t done = 0; good && done < size; done += kChunk) {
    const size_t part = std::min(kChunk, size - done);
    const void* source = reinterpret_cast<const void*>(address + done);
    const auto wanted = static_cast<ssize_t>(part);
    good = ::write(ends[1], source, part) == wanted &&
        ::read(ends[0], static_cast<std::byte*>(to) + done, part) == wanted;
  }
  ::close(ends[0]);
  ::close(ends[1]);
  return good;
}

uintptr_t word_at(const void* object) {
  uintptr_t word = 0;
  std::memcpy(&word, object, sizeof word);
  return word;
}

// What objects of these classes start with.
struct Vtables {
  std::array<uintptr_t, 2> tensors{}; // LibTorch's, and of shadow runs that
  std::array<uintptr_t, 2> storages{}; // have diverged.

  static const Vtables& get() {
    static const Vtables instance = [] {
      const auto storage = c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          0,
          c10::DataPtr(),
          nullptr,
          /*resizable=*/false);
      const auto tensor = c10::make_intrusive<c10::TensorImpl>(
          c10::Storage(storage),
          c10::DispatchKeySet(c10::DispatchKey::CPU),
          caffe2::TypeMeta::Make<float>());
      const auto shadow_storage =
          capture::make_shadow_storage(0, c10::Device(c10::kCPU));
      graph::Type type;
      type.dtype = c10::kFloat;
      const auto shadow = capture::make_shadow_tensor(
          shadow_storage, type, {}, /*is_view=*/false);
      return Vtables{
          {word_at(tensor.get()), word_at(shadow.unsafeGetTensorImpl())},
          {word_at(storage.get()),
           word_at(shadow_storage.unsafeGetStorageImpl())}};
    }();
    return instance;
  }
};

// The head of every intrusive_ptr_target.
struct Head {
  uintptr_t vtable = 0;
  uint64_t counts = 0;

  bool is(uintptr_t expected) const {
    constexpr uint32_t kMany = 1 << 24;
    const uint32_t strong = c10::detail::refcount(counts);
    const uint32_t weak = c10::detail::weakcount(counts);
    return vtable == expected && strong > 0 && strong < kMany && weak > 0 &&
        weak < kMany;
  }
};

bool is_target(uintptr_t address, const std::array<uintptr_t, 2>& vtables) {
  Head head;
  return read_memory(address, sizeof head, &head) &&
      (head.is(vtables[0]) || head.is(vtables[1]));
}

} // namespace

bool read_memory(uintptr_t address, size_t size, void* to) {
  iovec local{to, size};
  iovec remote{reinterpret_cast<void*>(address), size};
  const ssize_t count =
      ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
  if (count >= 0) {
    return static_cast<size_t>(count) == size;
  }
  return errno != EFAULT && read_through_pipe(address, size, to);
}

bool may_be_pointer(uintptr_t word) {
  return word >= kLowest && word < kHighest;
}

bool points_to_memory(uintptr_t word) {
  std::byte byte{};
  return may_be_pointer(word) && read_memory(word, 1, &byte);
}

const c10::TensorImpl* as_tensor(uintptr_t word, bool* undefined) {
  const auto* impl = reinterpret_cast<const c10::TensorImpl*>(word);
  *undefined = impl == c10::UndefinedTensorImpl::singleton();
  if (*undefined) {
    return impl;
  }
  if (word % alignof(c10::TensorImpl) != 0 || !may_be_pointer(word) ||
      !is_target(word, Vtables::get().tensors)) {
    return nullptr;
  }
  const auto storage = reinterpret_cast<uintptr_t>(
      impl->unsafe_storage().unsafeGetStorageImpl());
  return storage == 0 || is_target(storage, Vtables::get().storages) ? impl
                                                                     : nullptr;
}

std::shared_ptr<const LoadedObjects> LoadedObjects::current() {
  // Never destroyed: calls may come after main().
  static auto& cache = *new std::atomic<std::shared_ptr<const LoadedObjects>>();

  // Stops at the first object: all carry the version.
  uint64_t version = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        *static_cast<uint64_t*>(data) = info->dlpi_adds + info->dlpi_subs;
        return 1;
      },
      &version);
  if (auto cached = cache.load();
      cached != nullptr && cached->version_ == version) {
    return cached;
  }

  auto objects = std::make_shared<LoadedObjects>();
  objects->version_ = version;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& segments = *static_cast<std::vector<Segment>*>(data);
        const uintptr_t page = static_cast<uintptr_t>(::getpagesize());
        for (size_t i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          uintptr_t end = begin + header.p_memsz;
          if (header.p_type == PT_GNU_RELRO) {
            // Only whole pages are made read-only after relocation.
            end = end / page * page;
          } else if (header.p_type != PT_LOAD || (header.p_flags & PF_W) != 0) {
            continue;
          }
          if (begin < end) {
            segments.push_back({begin, end, (header.p_flags & PF_X) != 0});
          }
        }
        return 0;
      },
      &objects->segments_);
  std::sort(
      objects->segments_.begin(),
      objects->segments_.end(),
      [](const Segment& a, const Segment& b) { return a.begin < b.begin; });
  cache.store(objects);
  return objects;
}

const LoadedObjects::Segment* LoadedObjects::find(uintptr_t address) const {
  auto it = std::upper_bound(
      segments_.begin(),
      segments_.end(),
      address,
      [](uintptr_t value, const Segment& segment) {
        return value < segment.begin;
      });
  if (it == segments_.begin()) {
    return nullptr;
  }
  --it;
  return address < it->end ? &*it : nullptr;
}

bool LoadedObjects::is_constant(uintptr_t address) const {
  return find(address) != nullptr;
}

bool LoadedObjects::is_code(uintptr_t address) const {
  const Segment* segment = find(address);
  return segment != nullptr && segment->code;
}

} // namespace temper::dispatch
