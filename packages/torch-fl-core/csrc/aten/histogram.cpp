// Owns: histc of integers on a CPU target, whose kernel has none, though accelerators have: libraries
// choose by the device's name, not by the dtype.
#include <ATen/core/Tensor.h>
#include <ATen/ops/histc_ops.h>
#include <ATen/ops/to_ops.h>

#include "aten/own_operators.h"
#include "boxing/own_call.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

// Counted in double, which holds every count of elements; of other dtypes the CPU's own.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min,
                 const at::Scalar& max) {
  OwnCall<at::_ops::histc> call;
  const at::Tensor& source = call.in(self);
  return call.run([&] {
    if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
      return at::_ops::histc::call(source, bins, min, max);
    }
    const auto to = [](const at::Tensor& tensor, at::ScalarType dtype) {
      return at::_ops::to_dtype::call(tensor, dtype, false, false, std::nullopt);
    };
    return to(at::_ops::histc::call(to(source, at::kDouble), bins, min, max), self.scalar_type());
  });
}

}  // namespace

void install_histogram() {
  if (target().type != c10::DeviceType::CPU) return;
  routing::Typed<at::_ops::histc>::install_fixed(&histc, routing::Route::kBoxing);
}

}  // namespace torch_fl
