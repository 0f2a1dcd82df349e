// Owns: dropout on a CPU target, in the CPU's numbers. native_dropout is the only random operator
// there that takes no generator: it would draw from the CPU's stream instead of the device's.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like_ops.h>
#include <ATen/ops/zeros_ops.h>

#include "aten/composition.h"
#include "aten/own_operators.h"
#include "boxing/own_call.h"
#include "device/generator.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor>;

// The same numbers as the CPU's kernel: the mask is drawn element by element, then applied.
Results native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  OwnCall<at::_ops::native_dropout> call;
  const at::Tensor& source = call.in(input);
  return call.run([&]() -> Results {
    at::Tensor mask;
    if (!train.value_or(true)) {
      mask = at::_ops::ones_like::call(source, at::kBool, {}, {}, {}, {});
      return {at::_ops::clone::call(source, std::nullopt), std::move(mask)};
    }
    const double kept = 1 - p;
    mask = at::_ops::empty_like::call(source, at::kBool, {}, {}, {}, {});
    at::_ops::bernoulli__float::call(mask, kept, target_generator(std::nullopt, call.device()));
    at::Tensor output = at::_ops::mul_Tensor::call(source, mask);
    at::_ops::mul__Scalar::call(output, kept == 0 ? 0 : 1 / kept);
    return {std::move(output), std::move(mask)};
  });
}

// PyTorch composes dropout of native_dropout for every accelerator and of other operators for the
// CPU, which round differently. This is the CPU's composition. It consists of operators that autograd
// knows, so it stands under the autograd key as well and no gradient is lost.
at::Tensor dropout(const at::Tensor& input, double p, bool train) {
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  // A number of elements that nobody knows while tracing counts as some.
  if (p == 0 || !train || TORCH_GUARD_OR_FALSE(input.sym_numel().sym_eq(0))) return input;
  if (p == 1)
    return at::_ops::mul_Tensor::call(
        input, at::_ops::zeros::call({}, c10::typeMetaToScalarType(input.dtype()), input.layout(),
                                     input.device(), std::nullopt));
  at::Tensor noise = at::_ops::empty_like::call(input, {}, {}, {}, {}, {});
  at::_ops::bernoulli__float::call(noise, 1 - p, std::nullopt);
  at::_ops::div__Scalar::call(noise, 1 - p);
  return at::_ops::mul_Tensor::call(input, noise);
}

}  // namespace

void install_dropout() {
  if (target().type != c10::DeviceType::CPU) return;
  routing::Typed<at::_ops::native_dropout>::install_fixed(&native_dropout, routing::Route::kBoxing);
  install_composition<&dropout>("aten::dropout", "");
}

}  // namespace torch_fl
