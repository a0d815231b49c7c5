// The table of hidden writes in LibTorch 2.15, from reading its kernels.
//
// Declared since, and therefore not here: _native_batch_norm_legit,
// _batch_norm_with_update, _fused_moving_avg_obs_fq_helper, rrelu_with_noise,
// embedding_renorm_, _amp_update_scale_.
#include "ops/hidden_writes.h"

#include <array>
#include <string_view>

namespace temper::ops {

namespace {

/// When the tensors named by `written` are written.
enum class When : uint8_t { kAlways, kFlag };

struct Entry {
  std::string_view name; ///< All overloads.
  std::array<std::string_view, 2> written; ///< Argument names; may be empty.
  When when = When::kAlways;
  std::string_view flag{}; ///< kFlag: the bool argument that must be true.
};

constexpr std::array<std::string_view, 2> kStats = {
    "running_mean",
    "running_var"};

constexpr std::array<Entry, 13> kEntries = {{
    {"aten::native_batch_norm", kStats, When::kFlag, "training"},
    {"aten::cudnn_batch_norm", kStats, When::kFlag, "training"},
    {"aten::miopen_batch_norm", kStats, When::kFlag, "training"},
    {"aten::_batch_norm_impl_index", kStats, When::kFlag, "training"},
    {"aten::batch_norm", kStats, When::kFlag, "training"},
    {"aten::instance_norm", kStats, When::kFlag, "use_input_stats"},
    {"aten::batch_norm_update_stats", kStats},
    {"aten::batch_norm_gather_stats", kStats},
    {"aten::batch_norm_gather_stats_with_counts", kStats},
    // The dropout state is a generator in a tensor.
    {"aten::_cudnn_rnn", {"dropout_state", ""}, When::kFlag, "train"},
    {"aten::_cudnn_rnn_backward", {"dropout_state", "reserve"}},
    {"aten::miopen_rnn", {"dropout_state", ""}, When::kFlag, "train"},
    {"aten::miopen_rnn_backward", {"dropout_state", "reserve"}},
}};

const Entry* find_entry(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (entry.name == name) {
      return &entry;
    }
  }
  return nullptr;
}

} // namespace

bool may_write_hidden(const c10::OperatorHandle& op) {
  return find_entry(op.schema().name()) != nullptr;
}

HiddenWrites hidden_writes(
    const c10::OperatorHandle& op,
    const c10::IValue* arguments) {
  HiddenWrites result;
  const Entry* entry = find_entry(op.schema().name());
  if (entry == nullptr) {
    return result;
  }
  const std::vector<c10::Argument>& formals = op.schema().arguments();
  for (size_t i = 0; i < formals.size(); ++i) {
    if (entry->when == When::kFlag && formals[i].name() == entry->flag &&
        !arguments[i].toBool()) {
      return {};
    }
  }
  for (size_t i = 0; i < formals.size(); ++i) {
    const std::string& name = formals[i].name();
    const bool listed = name == entry->written[0] || name == entry->written[1];
    const bool declared = formals[i].alias_info() != nullptr;
    if (listed && !declared && arguments[i].isTensor() &&
        arguments[i].toTensor().defined()) {
      result.push_back(static_cast<int32_t>(i));
    }
  }
  return result;
}

} // namespace temper::ops
