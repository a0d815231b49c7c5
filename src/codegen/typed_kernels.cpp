// Finding the kernel of an operator.
#include "codegen/typed_kernels.h"

#include <unordered_map>

#include "codegen/boxed_kernel.h"

namespace temper::codegen {

namespace {

using Table = std::unordered_map<c10::OperatorName, program::Kernel>;

Table make_table() {
  Table table;
  for (const c10::ArrayRef<KernelEntry> entries :
       {pointwise_kernels(),
        pointwise_inplace_kernels(),
        activation_kernels(),
        view_kernels(),
        factory_kernels(),
        reduction_kernels(),
        matmul_kernels(),
        convolution_kernels(),
        norm_kernels(),
        loss_kernels(),
        indexing_kernels()}) {
    for (const KernelEntry& entry : entries) {
      table.emplace(
          c10::OperatorName(entry.name, entry.overload), entry.kernel);
    }
  }
  return table;
}

} // namespace

program::Kernel kernel_for(const c10::OperatorHandle& op) {
  // Never destroyed: calls may come after main().
  static const Table& table = *new Table(make_table());
  const auto found = table.find(op.operator_name());
  return found == table.end() ? &run_boxed : found->second;
}

} // namespace temper::codegen
