// Transcripts: copying what is seen, and finding the first difference.
#include "support/transcript.h"

#include <torch/torch.h>

#include <cstring>
#include <sstream>

namespace temper::testing {
namespace {

std::string facts_of(const at::Tensor& t) {
  std::ostringstream out;
  out << t.dtype() << ' ' << t.sizes();
  if (t.layout() == at::kStrided) {
    out << " strides " << t.strides() << " offset " << t.storage_offset();
  } else {
    out << ' ' << t.layout();
  }
  out << ' ' << t.device();
  const auto flag = [&](bool value, const char* name) {
    if (value) {
      out << ' ' << name;
    }
  };
  flag(t.requires_grad(), "requires_grad");
  flag(t.is_leaf(), "leaf");
  flag(t.grad_fn() != nullptr, "grad_fn");
  flag(t.is_inference(), "inference");
  flag(t.is_conj(), "conj");
  flag(t.is_neg(), "neg");
  flag(t.unsafeGetTensorImpl()->is_wrapped_number(), "number");
  return out.str();
}

std::string index_text(int64_t flat, at::IntArrayRef sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    index[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  std::ostringstream out;
  out << at::IntArrayRef(index);
  return out.str();
}

std::string value_text(const at::Tensor& element) {
  std::ostringstream out;
  if (element.is_complex()) {
    const auto z = element.item().toComplexDouble();
    out << std::hexfloat << z.real() << " + " << z.imag() << "i";
  } else if (element.is_floating_point()) {
    const double value = element.item().toDouble();
    out.precision(9);
    out << value << " (" << std::hexfloat << value << ')';
  } else {
    out << element.item().toLong();
  }
  return out.str();
}

// Both contiguous, of one dtype and size. One byte an element: is it equal?
at::Tensor equal_elements(
    const at::Tensor& expected,
    const at::Tensor& actual,
    Tolerance tolerance) {
  if (expected.is_complex()) {
    return equal_elements(
               at::view_as_real(expected), at::view_as_real(actual), tolerance)
        .all(-1);
  }
  if (!expected.is_floating_point()) {
    return expected == actual;
  }
  const auto nan = expected.isnan() & actual.isnan();
  if (tolerance.relative == 0 && tolerance.absolute == 0) {
    return nan |
        ((expected == actual) & (expected.signbit() == actual.signbit()));
  }
  return nan |
      at::isclose(expected, actual, tolerance.relative, tolerance.absolute);
}

} // namespace

std::optional<std::string> difference(
    const Observation& expected,
    const Observation& actual,
    Tolerance tolerance) {
  if (expected.name != actual.name) {
    return "'" + actual.name + "' was seen where eager showed '" +
        expected.name + "'";
  }
  if (expected.facts != actual.facts) {
    return "'" + expected.name + "':\n  eager    " + expected.facts +
        "\n  compiled " + actual.facts;
  }
  if (!expected.values.defined()) {
    return std::nullopt;
  }
  const auto& values = expected.values;
  const auto bytes = static_cast<size_t>(values.nbytes());
  if (bytes == 0 ||
      std::memcmp(values.data_ptr(), actual.values.data_ptr(), bytes) == 0) {
    return std::nullopt;
  }
  const auto equal =
      equal_elements(values, actual.values, tolerance).reshape(-1);
  const int64_t wrong = (~equal).sum().item<int64_t>();
  if (wrong == 0) {
    return std::nullopt;
  }
  const int64_t first = equal.to(at::kByte).argmin().item<int64_t>();
  std::ostringstream out;
  out << '\'' << expected.name << "': " << wrong << " of " << values.numel()
      << " values differ, first at " << index_text(first, values.sizes())
      << ":\n  eager    " << value_text(values.reshape(-1)[first])
      << "\n  compiled " << value_text(actual.values.reshape(-1)[first]);
  return out.str();
}

size_t Transcript::number_of_tensor(const at::Tensor& tensor) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i]._unsafe_get_target() == tensor.unsafeGetTensorImpl()) {
      return i;
    }
  }
  tensors_.emplace_back(tensor.getIntrusivePtr());
  return tensors_.size() - 1;
}

size_t Transcript::number_of_storage(const at::Tensor& tensor) {
  auto* impl = tensor.storage().unsafeGetStorageImpl();
  for (size_t i = 0; i < storages_.size(); ++i) {
    if (storages_[i]._unsafe_get_target() == impl) {
      return i;
    }
  }
  storages_.emplace_back(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl));
  return storages_.size() - 1;
}

void Transcript::add(std::string name, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    add_text(std::move(name), "undefined");
    return;
  }
  std::ostringstream facts;
  facts << facts_of(tensor) << " tensor #" << number_of_tensor(tensor);
  if (tensor.has_storage()) {
    facts << " storage #" << number_of_storage(tensor);
  }
  const at::NoGradGuard no_grad;
  auto values = tensor.detach().resolve_conj().resolve_neg();
  if (values.layout() != at::kStrided) {
    values = values.to_dense();
  }
  values = values.clone(at::MemoryFormat::Contiguous);
  observations_.push_back({std::move(name), facts.str(), std::move(values)});
}

void Transcript::add_text(std::string name, std::string text) {
  observations_.push_back({std::move(name), std::move(text), {}});
}

} // namespace temper::testing
