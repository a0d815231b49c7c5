// Shadow tensors: pooled memory, known memory formats.
#include "capture/shadow_tensor.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <typeinfo>
#include <utility>

#include "base/thread_object.h"

namespace temper::capture {
namespace {

// Memory of one size, which a thread keeps to use it again.
template <size_t kSize>
class Pool {
 public:
  static void* take() {
    auto* spare = base::ThreadObject<Spare>::while_alive();
    return spare != nullptr && spare->count > 0 ? spare->blocks[--spare->count]
                                                : ::operator new(kSize);
  }
  static void give(void* block) noexcept {
    auto* spare = base::ThreadObject<Spare>::while_alive();
    if (spare != nullptr && spare->count < kMost) {
      spare->blocks[spare->count++] = block;
    } else {
      ::operator delete(block);
    }
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr size_t kMost = 0; // It looks for uses of freed memory.
#else
  static constexpr size_t kMost = 256;
#endif
  struct Spare {
    ~Spare() {
      while (count > 0) {
        ::operator delete(blocks[--count]);
      }
    }
    std::array<void*, kMost> blocks;
    size_t count = 0;
  };
};

// Both are as their bases in all but the memory that they are in.
class ShadowStorage final : public c10::StorageImpl {
 public:
  using c10::StorageImpl::StorageImpl;
  static void* operator new(size_t /*size*/) {
    return Pool<sizeof(c10::StorageImpl)>::take();
  }
  static void operator delete(void* block) noexcept {
    Pool<sizeof(c10::StorageImpl)>::give(block);
  }
};
static_assert(sizeof(ShadowStorage) == sizeof(c10::StorageImpl));

class ShadowTensor final : public c10::TensorImpl {
 public:
  using c10::TensorImpl::TensorImpl;
  static void* operator new(size_t /*size*/) {
    return Pool<sizeof(c10::TensorImpl)>::take();
  }
  static void operator delete(void* block) noexcept {
    Pool<sizeof(c10::TensorImpl)>::give(block);
  }

  void set_geometry(const graph::Type& type, const ValueInfo& info);
};
static_assert(sizeof(ShadowTensor) == sizeof(c10::TensorImpl));

enum Format : uint8_t {
  kContiguous = 1,
  kChannelsLast = 2,
  kChannelsLastContiguous = 4,
  kChannelsLast3d = 8,
  kChannelsLast3dContiguous = 16,
  kNonOverlappingAndDense = 32,
};

void ShadowTensor::set_geometry(
    const graph::Type& type,
    const ValueInfo& info) {
  const size_t dim = type.sizes.size();
  sizes_and_strides_.resize(dim);
  numel_ = 1;
  for (size_t d = 0; d < dim; ++d) {
    sizes_and_strides_.size_at_unchecked(d) = type.sizes[d].size;
    sizes_and_strides_.stride_at_unchecked(d) = type.strides[d];
    numel_ *= type.sizes[d].size;
  }
  storage_offset_ = info.offset;
  const auto is = [&](Format format) { return (info.formats & format) != 0; };
  is_contiguous_ = is(kContiguous);
  is_channels_last_ = is(kChannelsLast);
  is_channels_last_contiguous_ = is(kChannelsLastContiguous);
  is_channels_last_3d_ = is(kChannelsLast3d);
  is_channels_last_3d_contiguous_ = is(kChannelsLast3dContiguous);
  is_non_overlapping_and_dense_ = is(kNonOverlappingAndDense);
}

} // namespace

// No longer than what std::string holds without an allocation: each storage has
// a copy. Only code that catches it sees it, since the call then runs again.
const char* const kShadowDataMessage = "temper: no data";

c10::Storage make_shadow_storage(size_t nbytes, c10::Device device) {
  auto storage = c10::make_intrusive<ShadowStorage>(
      c10::StorageImpl::use_byte_size_t(),
      nbytes,
      at::DataPtr(nullptr, device),
      nullptr,
      /*resizable=*/false);
  storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
      std::string(kShadowDataMessage));
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>(std::move(storage)));
}

at::Tensor make_shadow_tensor(
    c10::Storage storage,
    const graph::Type& type,
    const ValueInfo& info,
    bool is_view) {
  const auto dtype = c10::scalarTypeToTypeMeta(type.dtype);
  auto impl = is_view
      ? c10::make_intrusive<ShadowTensor>(
            c10::TensorImpl::VIEW, std::move(storage), info.keys, dtype)
      : c10::make_intrusive<ShadowTensor>(std::move(storage), info.keys, dtype);
  impl->set_geometry(type, info);
  return at::Tensor(
      c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>(
          std::move(impl)));
}

bool is_shadow_tensor(const c10::TensorImpl& impl) {
  return typeid(impl) == typeid(ShadowTensor);
}

uint8_t memory_formats(const c10::TensorImpl& impl) {
  const auto flag = [](Format format, bool is) { return is ? format : 0; };
  return static_cast<uint8_t>(
      flag(kContiguous, impl.is_contiguous()) |
      flag(kChannelsLast, impl.is_strides_like_channels_last()) |
      flag(
          kChannelsLastContiguous,
          impl.is_contiguous(c10::MemoryFormat::ChannelsLast)) |
      flag(kChannelsLast3d, impl.is_strides_like_channels_last_3d()) |
      flag(
          kChannelsLast3dContiguous,
          impl.is_contiguous(c10::MemoryFormat::ChannelsLast3d)) |
      flag(kNonOverlappingAndDense, impl.is_non_overlapping_and_dense()));
}

} // namespace temper::capture
