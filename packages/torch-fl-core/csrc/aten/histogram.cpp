// Owns: histc of integers on a CPU target, whose kernel has none, though accelerators have: libraries
// choose by the device's name, not by the dtype.
#include <ATen/core/Tensor.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/to_ops.h>

#include "aten/own_operators.h"
#include "boxing/relabeling.h"
#include "device/kernel_scope.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

// Counted in double, which holds every count of elements; of other dtypes the CPU's own.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min,
                 const at::Scalar& max) {
  Relabeling call;
  const at::Tensor source = call.alias(self);
  const KernelScope scope(call.device());
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
    return call.wrap(at::_ops::histc::call(source, bins, min, max));
  }
  const at::Tensor numbers =
      at::_ops::to_dtype::call(source, at::kDouble, false, false, std::nullopt);
  at::Tensor counts = at::_ops::histc::call(numbers, bins, min, max);
  return call.wrap(
      at::_ops::to_dtype::call(counts, self.scalar_type(), false, false, std::nullopt));
}

}  // namespace

void install_histogram() {
  if (target().type != c10::DeviceType::CPU) return;
  routing::Typed<at::_ops::histc>::install_core(&histc, routing::Route::kBoxing);
}

}  // namespace torch_fl
