// What a capture has seen: the raw graph, and what only this capture knows
// (identities, geometry), which shadow runs match against.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "capture/op_info.h"
#include "graph/graph.h"

namespace temper::capture {

/// Geometry of a value beside its `graph::Type`.
struct ValueInfo {
  int64_t offset = 0; ///< In elements.
  int32_t storage = -1; ///< Index into `Trace::storages`.
  c10::DispatchKeySet keys; ///< Of its TensorImpl.
  uint8_t formats = 0; ///< See `memory_formats`; of the forward part's values.
};

struct StorageInfo {
  size_t nbytes = 0;
  int32_t input = -1; ///< The graph input that brought it, or -1.
  bool written = false; ///< By an op, after it was there.
  /// Seen in a new way by an in-place view op (`unsqueeze_`), which counts up
  /// the version like a write.
  bool rebound = false;
};

/// Where a graph input's tensor comes from at a call.
struct Binding {
  int32_t argument = -1; ///< Index into the call's tensors, or -1:
  at::TensorImpl* watched = nullptr; ///< a tensor of the watched state.
  /// By how much the call counts up its version. Ops through `.data()` and
  /// writes that no schema tells (running statistics) count nothing.
  int64_t version_steps = 0;

  /// The tensor at a call with these arguments.
  at::Tensor tensor(const std::vector<at::Tensor>& arguments) const;
};

/// Beside each op of the graph.
struct OpRecord {
  const OpInfo* info = nullptr;
  /// All results share memory with operands and nothing is written. Unless it
  /// is LibTorch's own, a shadow run executes it on the shadow's storage.
  bool view = false;
  /// Its (uninitialised) result is written behind the dispatcher: a shadow run
  /// gives it real memory and compares the bytes with the trace's literal.
  bool literal_source = false;
  /// Called as a metadata-only in-place op (`unsqueeze_`): results[0] is the
  /// same tensor object, looking at its memory in the new way.
  bool rebinds = false;
  bool grad_mode = false; ///< The op was called in grad mode.
  /// How often more than once the op may have counted up the versions of what
  /// it writes: the kernel did, one of another library, or `mark_dirty` of the
  /// custom autograd function that it is in.
  int64_t extra_steps = 0;
};

/// How long the parts of a trace were when its forward part ended. What comes
/// behind was added by backwards.
struct ForwardEnd {
  size_t values = 0;
  size_t storages = 0;
  size_t inputs = 0;
  size_t objects = 0;
  size_t slots = 0;
};

struct Trace {
  graph::Graph graph;
  std::vector<ValueInfo> values; ///< As `graph.values`.
  std::vector<StorageInfo> storages;
  std::vector<OpRecord> ops; ///< As `graph.ops`.
  std::vector<Binding> bindings; ///< As `graph.inputs`; empty for tangents.
  std::vector<c10::IValue> objects; ///< As `graph.objects`.
  ForwardEnd forward; ///< Valid once the results have been planned.
  bool rng = false; ///< Some op draws random numbers.
  bool inner_gradients = false; ///< A backward ran inside the call.
  bool script = false; ///< Some op was called by TorchScript.
  /// Why the call can't be served by a program; empty if it can.
  std::string unsupported;
};

/// True iff a trace can hold `tensor` (a defined one): it is strided and has
/// memory.
bool is_recordable(const at::Tensor& tensor);

/// A tensor's memory as it is now, with its version counter, without the tensor
/// itself and its history.
at::Tensor memory_of(const at::Tensor& tensor);

} // namespace temper::capture
