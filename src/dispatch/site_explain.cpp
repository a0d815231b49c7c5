// What a call site did, as text.
#include <sstream>

#include "dispatch/site_impl.h"

namespace temper::dispatch {
namespace {

const char* name_of(Tier tier) {
  switch (tier) {
    case Tier::kNew:
      return "new";
    case Tier::kWaiting:
      return "traced, a backward is waited for";
    case Tier::kReady:
      return "compiled, to be proved at the next call";
    case Tier::kAdmitted:
      return "admitted: guards, then the program";
    case Tier::kEager:
      return "eager";
  }
  return "?";
}

} // namespace

std::string CallSite::explain() const {
  const auto numbers = impl_->counters.read();
  std::ostringstream out;
  out << "'" << impl_->name << "': " << numbers.calls << " calls, "
      << numbers.program_calls << " by program, " << numbers.traces
      << " traced, " << numbers.shadow_runs << " shadowed, "
      << numbers.admissions << " admissions, " << numbers.program_backwards
      << " program backwards, " << numbers.graphs << " new graphs\n";
  for (const auto& [reason, count] : numbers.eager_calls) {
    out << "  " << count << " eager: " << reason << "\n";
  }
  std::ostringstream costs;
  impl_->costs.print(costs);
  if (!costs.str().empty()) {
    out << "  cost: " << costs.str() << "\n";
  }
  const std::scoped_lock lock(impl_->mutex);
  for (size_t i = 0; i < impl_->signatures.size(); ++i) {
    auto& signature = *impl_->signatures[i];
    out << "  signature " << i << ": " << name_of(signature.tier);
    if (signature.tier == Tier::kEager) {
      const std::scoped_lock lock_signature(signature.mutex);
      out << ": " << signature.reason;
    }
    if (const auto plan = signature.plan.load()) {
      out << "; graph " << plan->artifact->hash << ", "
          << plan->trace->graph.num_forward_ops << " forward ops";
      if (!plan->backwards.empty()) {
        out << ", "
            << plan->trace->graph.ops.size() -
                static_cast<size_t>(plan->trace->graph.num_forward_ops)
            << " backward ops";
      }
      if (plan->backwards.size() > 1) {
        out << " in " << plan->backwards.size() << " kinds of backward";
      }
    }
    out << "\n";
  }
  return out.str();
}

} // namespace temper::dispatch
