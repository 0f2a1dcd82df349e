// Owns: operators whose composition asks for a device by name before it takes a library's kernel, or
// lays memory out for its own: grid sampling, the CTC loss, group norm. The same questions are put to
// the target about its own tensors; what it does not take goes to PyTorch's composition.
#include <ATen/core/Reduction.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/_cudnn_ctc_loss_ops.h>
#include <ATen/ops/_use_cudnn_ctc_loss_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/contiguous_ops.h>
#include <ATen/ops/ctc_loss_native.h>
#include <ATen/ops/cudnn_grid_sampler_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/grid_sampler_native.h>
#include <ATen/ops/group_norm_native.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/squeeze_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/to_ops.h>
#include <ATen/ops/unsqueeze_ops.h>

#include "aten/composition.h"
#include "aten/likeness.h"
#include "aten/own_operators.h"
#include "aten/plain.h"
#include "boxing/relabeling.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

using at::IntArrayRef;
using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

Tensor grid_sampler(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
                    bool align_corners) {
  using namespace at::native;
  const bool supported =
      static_cast<GridSamplerInterpolation>(interpolation) == GridSamplerInterpolation::Bilinear &&
      static_cast<GridSamplerPadding>(padding) == GridSamplerPadding::Zeros && align_corners;
  if (supported && has_likeness(input) && has_likeness(grid)) {
    bool taken = false;
    {
      Likenesses like;
      taken = cond_cudnn_grid_sampler(like.of(input), like.of(grid));
    }
    if (taken) return at::_ops::cudnn_grid_sampler::call(input, grid);
  }
  return at::native::grid_sampler(input, grid, interpolation, padding, align_corners);
}

// What the library takes: lengths are numbers, or tensors, which it reads where they are.
bool takes(const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs, IntArrayRef lengths,
           int64_t blank) {
  Relabeling call;
  return at::_ops::_use_cudnn_ctc_loss::call(call.alias(log_probs), call.alias(targets), inputs,
                                             lengths, blank);
}
bool takes(const Tensor& log_probs, const Tensor& targets, const Tensor& inputs,
           const Tensor& lengths, int64_t blank) {
  Relabeling call;
  return at::_ops::_use_cudnn_ctc_loss_Tensor::call(call.alias(log_probs), call.alias(targets),
                                                    call.alias(inputs), call.alias(lengths), blank);
}

// PyTorch keeps to the library's deterministic algorithm: the other gives wrong results.
constexpr bool kDeterministic = true;

Tensor losses(const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs,
              IntArrayRef lengths, int64_t blank, bool zero_infinity) {
  return std::get<0>(at::_ops::_cudnn_ctc_loss::call(log_probs, targets, inputs, lengths, blank,
                                                     kDeterministic, zero_infinity));
}
Tensor losses(const Tensor& log_probs, const Tensor& targets, const Tensor& inputs,
              const Tensor& lengths, int64_t blank, bool zero_infinity) {
  return std::get<0>(at::_ops::_cudnn_ctc_loss_Tensor::call(log_probs, targets, inputs, lengths,
                                                            blank, kDeterministic, zero_infinity));
}

Tensor at_least_one(IntArrayRef lengths, const Tensor& like) {
  return at::_ops::clamp_min::call(at::tensor(lengths, like.options()), 1);
}
Tensor at_least_one(const Tensor& lengths, const Tensor& /*like*/) {
  return at::_ops::clamp_min::call(lengths, 1);
}

Tensor reduced(const Tensor& loss, int64_t reduction, const auto& lengths, bool is_batched) {
  if (reduction == at::Reduction::Mean) {
    const auto relative = at::_ops::div_Tensor::call(loss, at_least_one(lengths, loss));
    return at::_ops::mean::call(relative, std::nullopt);
  }
  if (reduction == at::Reduction::Sum) return at::_ops::sum::call(loss, std::nullopt);
  return is_batched ? loss : at::_ops::squeeze_dim::call(loss, 0);
}

// The loss by the library; undefined where the target would not take it.
Tensor by_library(const Tensor& log_probs, const Tensor& targets, const auto& inputs,
                  const auto& lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  if (!is_plain(log_probs) || (targets.device().type() == kFlagos && !is_plain(targets))) return {};
  const bool is_batched = log_probs.dim() == 3;
  const Tensor batch = is_batched ? log_probs : at::_ops::unsqueeze::call(log_probs, 1);
  if (!takes(batch, targets, inputs, lengths, blank)) return {};
  return reduced(losses(batch, targets, inputs, lengths, blank, zero_infinity), reduction, lengths,
                 is_batched);
}

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef inputs,
                IntArrayRef lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  auto loss = by_library(log_probs, targets, inputs, lengths, blank, reduction, zero_infinity);
  if (loss.defined()) return loss;
  return at::native::ctc_loss(log_probs, targets, inputs, lengths, blank, reduction, zero_infinity);
}

// On the host, as numbers.
Tensor numbers(const Tensor& lengths) {
  const auto moved =
      at::_ops::to_device::call(lengths, at::kCPU, at::kLong, false, false, std::nullopt);
  return at::_ops::contiguous::call(moved, at::MemoryFormat::Contiguous);
}

Tensor ctc_loss_of_tensors(const Tensor& log_probs, const Tensor& targets, const Tensor& inputs,
                           const Tensor& lengths, int64_t blank, int64_t reduction,
                           bool zero_infinity) {
  auto loss = by_library(log_probs, targets, inputs, lengths, blank, reduction, zero_infinity);
  if (loss.defined()) return loss;
  if (!is_plain(log_probs)) {
    return at::native::ctc_loss(log_probs, targets, inputs, lengths, blank, reduction,
                                zero_infinity);
  }
  const auto input_numbers = numbers(inputs);
  const auto length_numbers = numbers(lengths);
  const auto values = [](const Tensor& tensor) {
    return IntArrayRef(tensor.data_ptr<int64_t>(), static_cast<size_t>(tensor.numel()));
  };
  return torch_fl::ctc_loss(log_probs, targets, values(input_numbers), values(length_numbers),
                            blank, reduction, zero_infinity);
}

// PyTorch's composition keeps channels_last for a device from outside, as for the CPU; the kernels of
// accelerators want it plain.
Tensor group_norm(const Tensor& input, int64_t groups, const OptionalTensor& weight,
                  const OptionalTensor& bias, double eps, bool cudnn_enabled) {
  const auto plain = at::_ops::contiguous::call(input, at::MemoryFormat::Contiguous);
  return at::native::group_norm(plain, groups, weight, bias, eps, cudnn_enabled);
}

bool has(const char* name) {
  return routing::find(name, "").hasKernelForDispatchKey(target().dense);
}

}  // namespace

void install_library_choices() {
  if (target().type == c10::DeviceType::CPU) return;  // PyTorch's compositions are made for it
  install_composition<&group_norm>("aten::group_norm", "");
  if (has("aten::cudnn_grid_sampler")) {
    install_composition<&torch_fl::grid_sampler>("aten::grid_sampler", "");
  }
  if (has("aten::_use_cudnn_ctc_loss")) {
    install_composition<&torch_fl::ctc_loss>("aten::ctc_loss", "IntList");
    install_composition<&ctc_loss_of_tensors>("aten::ctc_loss", "Tensor");
  }
}

}  // namespace torch_fl
