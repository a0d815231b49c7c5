// The counting allocator: a header before each block names size and account.
#include "common/memory_meter.h"

#include <atomic>
#include <mutex>
#include <new>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/alignment.h>

namespace examples {

struct MemoryBooks {
  std::atomic<int64_t> bytes{0};
  std::atomic<int64_t> peak{0};

  void add(int64_t n) {
    const int64_t now = bytes.fetch_add(n, std::memory_order_relaxed) + n;
    int64_t seen = peak.load(std::memory_order_relaxed);
    while (seen < now &&
           !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
};

namespace {

std::atomic<MemoryBooks*> in_use{nullptr};

/// As large as c10's alignment, so that the block behind it stays aligned.
struct alignas(c10::gAlignment) Header {
  void* block; ///< What the inner allocator returned: the header itself.
  int64_t bytes; ///< As the caller asked.
  MemoryBooks* books; ///< Null where no account was in use.
};

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {
    // The deleter of a c10::DataPtr is a plain function; it finds the inner
    // one here.
    free_block = inner->raw_deleter();
  }

  c10::DataPtr allocate(size_t n) override {
    const c10::Device device(c10::DeviceType::CPU);
    if (n == 0) {
      return {nullptr, nullptr, &release, device};
    }
    void* const block = inner_->raw_allocate(n + sizeof(Header));
    auto* const header = new (block) Header{
        block, static_cast<int64_t>(n), in_use.load(std::memory_order_relaxed)};
    if (header->books != nullptr) {
      header->books->add(header->bytes);
    }
    void* const data = header + 1;
    return {data, data, &release, device};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* dest, const void* src, std::size_t count)
      const override {
    default_copy_data(dest, src, count);
  }

 private:
  static void release(void* data) {
    if (data == nullptr) {
      return;
    }
    const Header* const header = static_cast<Header*>(data) - 1;
    if (header->books != nullptr) {
      header->books->add(-header->bytes);
    }
    free_block(header->block);
  }

  static inline c10::DeleterFnPtr free_block = nullptr;
  c10::Allocator* inner_;
};

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    constexpr uint8_t kAboveDefault = 1;
    // Never freed: tensors in static storage are released after it would be.
    c10::SetCPUAllocator(
        new CountingAllocator(c10::GetCPUAllocator()), kAboveDefault);
  });
}

} // namespace

MemoryAccount::MemoryAccount() : books_(new MemoryBooks) {
  install();
}

int64_t MemoryAccount::bytes() const {
  return books_->bytes.load(std::memory_order_relaxed);
}

int64_t MemoryAccount::peak_bytes() const {
  return books_->peak.load(std::memory_order_relaxed);
}

void MemoryAccount::reset_peak() {
  books_->peak.store(bytes(), std::memory_order_relaxed);
}

MemoryAccount::Use::Use(MemoryAccount& account)
    : previous_(in_use.exchange(account.books_, std::memory_order_relaxed)) {}

MemoryAccount::Use::~Use() {
  in_use.store(previous_, std::memory_order_relaxed);
}

} // namespace examples
