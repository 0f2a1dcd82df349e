// Owns: which batch norm runs on an accelerator. PyTorch's composition gives the libraries' ones
// (cuDNN, MIOpen) to devices that it knows by name; this one asks the same question about the
// target's tensors. Everything else goes to PyTorch's composition, with its checks and errors.
#include <ATen/core/Tensor.h>
#include <ATen/native/Normalization.h>
#include <ATen/ops/_batch_norm_impl_index_native.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/miopen_batch_norm_ops.h>

#include "aten/composition.h"
#include "aten/likeness.h"
#include "aten/own_operators.h"
#include "device/kernel_scope.h"

namespace torch_fl {
namespace {

using at::Tensor;
using at::native::BatchNormBackend;
using OptionalTensor = std::optional<Tensor>;
// The result, the batch's mean and inverse deviation (or variance), what the library keeps for the
// backward, and the number by which PyTorch's composition tells the libraries apart.
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t>;

const Tensor& or_undefined(const OptionalTensor& tensor) {
  static const Tensor kUndefined;
  return tensor ? *tensor : kUndefined;
}

// One value per channel, or nothing. PyTorch's composition has the errors for other shapes.
bool per_channel(const Tensor& tensor, const Tensor& input) {
  return !tensor.defined() || (has_likeness(tensor) && tensor.dim() == 1 &&
                               tensor.sym_size(0) == input.sym_size(1) && tensor.is_contiguous());
}

BatchNormBackend ask_target(const Tensor& input, const Tensor& weight, const Tensor& bias,
                            const Tensor& mean, const Tensor& variance, bool training, double eps) {
  Likenesses like;
  const Tensor x = like.of(input);
  const Tensor w = like.of(weight);
  const Tensor b = like.of(bias);
  const Tensor m = like.of(mean);
  const Tensor v = like.of(variance);
  const KernelScope scope(like.device());
  return at::native::_select_batch_norm_backend(x, w, b, m, v, training, eps);
}

Results batch_norm(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                   const OptionalTensor& running_mean, const OptionalTensor& running_var,
                   bool training, double momentum, double eps, bool cudnn_enabled) {
  const Tensor& w = or_undefined(weight);
  const Tensor& b = or_undefined(bias);
  const Tensor& mean = or_undefined(running_mean);
  const Tensor& variance = or_undefined(running_var);
  auto backend = BatchNormBackend::Native;
  if (has_likeness(input) && input.dim() >= 2 && w.defined() && per_channel(w, input) &&
      per_channel(b, input) && per_channel(mean, input) && per_channel(variance, input)) {
    backend = ask_target(input, w, b, mean, variance, training, eps);
  }
  if (backend == BatchNormBackend::Cudnn && cudnn_enabled) {
    auto [output, save_mean, save_var, reserve] =
        at::_ops::cudnn_batch_norm::call(input.contiguous(input.suggest_memory_format()), w, bias,
                                         running_mean, running_var, training, momentum, eps);
    return {output, save_mean, save_var, reserve, 1};
  }
  if (backend == BatchNormBackend::Miopen && cudnn_enabled) {
    auto [output, save_mean, save_var] =
        at::_ops::miopen_batch_norm::call(input.contiguous(input.suggest_memory_format()), w, bias,
                                          running_mean, running_var, training, momentum, eps);
    const Tensor reserve =
        at::_ops::empty_memory_format::call({0}, at::kByte, input.layout(), input.device(), {}, {});
    return {output, save_mean, save_var, reserve, 2};
  }
  return at::native::_batch_norm_impl_index(input, weight, bias, running_mean, running_var,
                                            training, momentum, eps, cudnn_enabled);
}

}  // namespace

void install_batch_norm() {
  if (target().type == c10::DeviceType::CPU) return;  // it has one
  install_composition<&batch_norm>("aten::_batch_norm_impl_index", "");
}

}  // namespace torch_fl
