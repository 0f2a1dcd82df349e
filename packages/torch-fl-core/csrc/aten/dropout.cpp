// Owns: native_dropout on a CPU target. It is the only random operator there that takes no
// generator: it would draw from the CPU's stream instead of the device's.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like_ops.h>

#include "aten/own_operators.h"
#include "boxing/relabeling.h"
#include "device/generator.h"
#include "device/kernel_scope.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor>;

// The same numbers as the CPU's kernel: the mask is drawn element by element, then applied.
Results native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  Relabeling call;
  const at::Tensor source = call.alias(input);
  const KernelScope scope(call.device());
  at::Tensor mask;
  at::Tensor output;
  if (!train.value_or(true)) {
    mask = at::_ops::ones_like::call(source, at::kBool, {}, {}, {}, {});
    output = at::_ops::clone::call(source, std::nullopt);
  } else {
    const double kept = 1 - p;
    mask = at::_ops::empty_like::call(source, at::kBool, {}, {}, {}, {});
    at::_ops::bernoulli__float::call(mask, kept, target_generator(std::nullopt, call.device()));
    output = at::_ops::mul_Tensor::call(source, mask);
    at::_ops::mul__Scalar::call(output, kept == 0 ? 0 : 1 / kept);
  }
  return {call.wrap(std::move(output)), call.wrap(std::move(mask))};
}

}  // namespace

void install_dropout() {
  if (target().type != c10::DeviceType::CPU) return;
  routing::Typed<at::_ops::native_dropout>::install("boxing", &native_dropout);
}

}  // namespace torch_fl
