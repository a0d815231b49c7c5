// Call sites behind the templates of the public headers.
#include "temper/detail/site.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/counters.h"
#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_object.h"
#include "codegen/numerics.h"
#include "dispatch/call_site.h"
#include "module/backends.h"
#include "module/watched_state.h"

namespace temper::detail {

namespace {

// A stack of calls' buffers: calls nest, in one thread.
struct Buffers {
  std::vector<std::unique_ptr<dispatch::Call>> calls;
  size_t depth = 0;
};

dispatch::Call& push_call() {
  Buffers& buffers = base::ThreadObject<Buffers>::get();
  if (C10_UNLIKELY(buffers.depth == buffers.calls.size())) {
    buffers.calls.push_back(std::make_unique<dispatch::Call>());
  }
  return *buffers.calls[buffers.depth++];
}

// Bytes beyond which a buffer is not kept.
constexpr size_t kKeptBytes = 1 << 16;

dispatch::SiteOptions site_options(const CompileOptions& options) {
  dispatch::SiteOptions result;
  result.backend = options.backend();
  // Checked before.
  result.numerics = codegen::numerics_of(options.numerics()).value();
  result.freeze_weights = options.freeze_weights();
  result.fullgraph = options.fullgraph();
  result.max_graphs = options.max_graphs();
  result.max_signatures = options.max_signatures();
  return result;
}

} // namespace

Frame::Frame() : Frame(push_call()) {}

Frame::Frame(dispatch::Call& call)
    : call_(call), tensors_(call.tensors), structure_(call.structure) {}

Frame::~Frame() {
  // What the tensors own may call compiled code when it goes, so this frame
  // stays on the stack until they are gone.
  tensors_.clear();
  structure_.clear();
  if (structure_.capacity() > kKeptBytes) {
    structure_.shrink_to_fit();
  }
  --base::ThreadObject<Buffers>::get().depth;
}

struct Site::Impl {
  Impl(
      std::string site_name,
      const CompileOptions& compile_options,
      std::function<void(State&)> describe)
      : name(std::move(site_name)),
        options(compile_options),
        enabled(!base::disabled()),
        site(
            name,
            site_options(compile_options),
            [describe = std::move(describe)](dispatch::Watch& watch) {
              module::WatchedState state(watch);
              describe(state);
            }) {}

  dispatch::Result result_of(Values values) {
    if (C10_UNLIKELY(!values.rejected.empty())) {
      // It proves nothing, so it has a structure that no other has; and from
      // the next call on the code runs plainly.
      static std::atomic<uint64_t> number{0};
      values.structure += '\0';
      values.structure += std::to_string(++number);
      const std::lock_guard lock(mutex);
      unstructured = values.rejected;
      has_unstructured.store(true, std::memory_order_release);
    }
    return {
        std::move(values.tensors),
        std::move(values.structure),
        std::move(values.prototype)};
  }

  void check_may_run_plainly(bool fullgraph, const std::string& reason) const {
    TEMPER_CHECK(
        !fullgraph,
        "cannot compile a call of '",
        name,
        "': ",
        reason,
        ", expected tensors and plain values. To let it run eagerly use "
        "CompileOptions().fullgraph(false).");
  }

  const std::string name;
  mutable std::mutex mutex; // Guards `options` and `unstructured`.
  CompileOptions options;
  std::string unstructured;
  std::atomic<bool> has_unstructured{false};
  std::atomic<bool> called{false};
  const bool enabled;
  const std::shared_ptr<const void> alive = std::make_shared<char>();
  base::SiteCounters plain; // Calls that never came to `site`.
  dispatch::CallSite site;
};

Site::Site(
    std::string name,
    const CompileOptions& options,
    std::function<void(State&)> describe) {
  module::check_options("cannot compile '" + name + "'", options);
  impl_ = std::make_unique<Impl>(std::move(name), options, std::move(describe));
}

Site::~Site() = default;

Values Site::call(const Frame& frame, Code code, MakeRerun make_rerun) {
  Impl& impl = *impl_;
  if (C10_UNLIKELY(!impl.called.load(std::memory_order_relaxed))) {
    impl.called.store(true, std::memory_order_relaxed);
  }
  if (C10_UNLIKELY(impl.has_unstructured.load(std::memory_order_acquire))) {
    std::string reason;
    {
      const std::lock_guard lock(impl.mutex);
      reason = impl.unstructured;
    }
    run_plainly(reason);
    return code(frame.tensors());
  }
  const auto run = [&](const std::vector<at::Tensor>& given) {
    return impl.result_of(code(given));
  };
  const auto make = [&]() -> dispatch::Rerun {
    return [rerun = make_rerun()](const std::vector<at::Tensor>& given) {
      Values values = rerun(given);
      return dispatch::Result{
          std::move(values.tensors),
          std::move(values.structure),
          std::move(values.prototype)};
    };
  };
  dispatch::Result outcome = impl.site.call(frame.call_, run, make);
  return {
      std::move(outcome.tensors),
      std::move(outcome.structure),
      std::move(outcome.prototype),
      {}};
}

void Site::run_plainly(const std::string& reason) {
  Impl& impl = *impl_;
  impl.called.store(true, std::memory_order_relaxed);
  impl.check_may_run_plainly(options().fullgraph(), reason);
  if (dispatch::inside_another_call()) {
    return;
  }
  impl.plain.bump(base::Counter::kCalls);
  impl.plain.bump_eager(reason);
  TEMPER_LOG(kEager, "'", impl.name, "' runs eagerly: ", reason, '.');
}

const std::string& Site::name() const {
  return impl_->name;
}

CompileOptions Site::options() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->options;
}

void Site::set_options(const CompileOptions& options) {
  module::check_options("cannot compile '" + impl_->name + "'", options);
  const std::lock_guard lock(impl_->mutex);
  if (impl_->options != options) {
    impl_->site.set_options(site_options(options));
    impl_->options = options;
    impl_->has_unstructured.store(false, std::memory_order_release);
  }
}

bool Site::enabled() const {
  return impl_->enabled;
}

bool Site::called() const {
  return impl_->called.load(std::memory_order_relaxed);
}

std::weak_ptr<const void> Site::alive() const {
  return impl_->alive;
}

Counters Site::counters() const {
  Counters all = impl_->site.counters();
  const Counters plain = impl_->plain.read();
  all.calls += plain.calls;
  for (const auto& [reason, n] : plain.eager_calls) {
    all.eager_calls[reason] += n;
  }
  return all;
}

std::string Site::explain() const {
  if (!enabled()) {
    return "'" + impl_->name +
        "' is compiled, but TEMPER_DISABLE is set: calls run plainly.\n";
  }
  std::string text = impl_->site.explain();
  for (const auto& [reason, n] : impl_->plain.read().eager_calls) {
    text += c10::str(n, n == 1 ? " call" : " calls", " ran eagerly: ");
    text += reason + ".\n";
  }
  return text;
}

std::string name_of_type(const std::type_info& type) {
  std::string name = c10::demangle(type.name());
  constexpr std::string_view kUnnamed = "(anonymous namespace)::";
  for (size_t at = 0; (at = name.find(kUnnamed)) != std::string::npos;) {
    name.erase(at, kUnnamed.size());
  }
  // "ns::NetImpl" is known to its user as "Net".
  constexpr std::string_view kSuffix = "Impl";
  if (name.ends_with(kSuffix) && name.find('<') == std::string::npos) {
    const size_t scope = name.rfind("::");
    name.erase(0, scope == std::string::npos ? 0 : scope + 2);
    if (name.size() > kSuffix.size()) {
      name.resize(name.size() - kSuffix.size());
    }
  }
  return name;
}

void throw_code_gone() {
  base::throw_error(
      "cannot run a backward pass: the compiled function or module that it "
      "belongs to is gone, and with it what it refers to. Keep it alive until "
      "the last backward; a module in a holder or std::shared_ptr is kept.");
}

void throw_wrong_prototype(const std::type_info& type) {
  TEMPER_INTERNAL(
      false, "a result for other code was returned as ", name_of_type(type));
}

} // namespace temper::detail
