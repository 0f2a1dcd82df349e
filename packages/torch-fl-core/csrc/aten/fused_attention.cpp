// Owns: scaled-dot-product attention on an accelerator. PyTorch's composition gives the fused
// implementations to devices that it knows by name; this one asks the target which it would take and
// calls that as an operator, which autograd knows. What the target gives to the math path, and what
// is malformed, goes to PyTorch's composition.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_ops.h>
#include <ATen/ops/constant_pad_nd_ops.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/scalar_tensor_ops.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/slice_ops.h>
#include <ATen/ops/where_ops.h>
#include <torch/version.h>

#include <cmath>
#include <limits>

#include "aten/attention.h"
#include "aten/composition.h"
#include "aten/likeness.h"
#include "aten/own_operators.h"

namespace torch_fl {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Elements: of a head, for flash attention; of a mask's rows, for memory-efficient attention. The
// numbers are those of PyTorch's composition.
constexpr int64_t kHeadAlignment = 8;
constexpr int64_t kMaskAlignment = 8;

// What the target may be asked about. PyTorch's composition has the errors for everything else.
bool well_formed(const Tensor& query, const Tensor& key, const Tensor& value,
                 const OptionalTensor& mask) {
  for (const Tensor* tensor : {&query, &key, &value}) {
    if (!has_likeness(*tensor) || tensor->dim() < 2 || tensor->dtype() != query.dtype() ||
        tensor->device() != query.device()) {
      return false;
    }
  }
  return !mask || (has_likeness(*mask) && mask->device() == query.device() &&
                   (mask->scalar_type() == at::kBool || mask->dtype() == query.dtype()));
}

Tensor pad_last(const Tensor& tensor, const c10::SymInt& count) {
  const std::array<c10::SymInt, 2> pad{0, count};
  return at::_ops::constant_pad_nd::call(tensor, pad, 0);
}

Tensor pad_head(const Tensor& tensor) {
  const c10::SymInt over = tensor.sym_size(-1) % kHeadAlignment;
  return over == 0 ? tensor : pad_last(tensor, c10::SymInt(kHeadAlignment) - over);
}

Tensor cut_last(const Tensor& tensor, const c10::SymInt& size) {
  if (tensor.sym_size(-1) == size) return tensor;
  return at::_ops::slice_Tensor::call(tensor, -1, 0, size, 1);
}

// Up to torch 2.11 PyTorch hands cuDNN no infinity, so that a row in which nothing counts is averaged.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR <= 11
constexpr double kCudnnHidden = -65504;
#else
constexpr double kCudnnHidden = -std::numeric_limits<double>::infinity();
#endif
constexpr double kHidden = -std::numeric_limits<double>::infinity();

// What is added to the scores: a mask of booleans says which of them count.
OptionalTensor additive(const OptionalTensor& mask, const Tensor& query, double hidden = kHidden) {
  if (!mask || mask->scalar_type() != at::kBool) return mask;
  const Tensor out = at::_ops::scalar_tensor::call(hidden, query.scalar_type(), at::kStrided,
                                                   mask->device(), std::nullopt);
  return at::_ops::where_ScalarSelf::call(*mask, 0.0, out);
}

bool has_aligned_rows(const Tensor& mask) {
  for (int64_t d = 0; d < mask.dim() - 1; ++d) {
    if (mask.sym_stride(d) % kMaskAlignment != 0) return false;
  }
  return mask.sym_stride(-1) == 1;
}

// Rows of a wider tensor. As in PyTorch's composition some elements are added in any case.
Tensor align_rows(const Tensor& mask) {
  const c10::SymInt width = mask.sym_size(-1);
  return cut_last(pad_last(mask, c10::SymInt(kMaskAlignment) - width % kMaskAlignment), width);
}

// (batch, heads, queries, keys), with rows that begin where the kernel can load them.
OptionalTensor aligned(const OptionalTensor& mask, const Tensor& query, const Tensor& key) {
  if (!mask) return mask;
  const Tensor rows = has_aligned_rows(*mask) ? *mask : align_rows(*mask);
  const std::array<c10::SymInt, 4> shape{query.sym_size(0), query.sym_size(1), query.sym_size(2),
                                         key.sym_size(2)};
  return at::_ops::expand::call(rows, shape, false);
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const OptionalTensor& mask, double dropout_p, bool is_causal,
                 std::optional<double> scale, bool enable_gqa) {
  const auto choice =
      well_formed(query, key, value, mask)
          ? target_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
          : at::SDPBackend::math;
  // Only where somebody will go back: otherwise the sums of exponentials are left out.
  const bool backward = at::GradMode::is_enabled() &&
                        (query.requires_grad() || key.requires_grad() || value.requires_grad());
  switch (choice) {
    case at::SDPBackend::flash_attention: {
      // The scale is that of heads as they are, unpadded.
      const c10::SymInt width = query.sym_size(-1);
      const double factor =
          scale ? *scale : 1 / std::sqrt(static_cast<double>(width.guard_int(__FILE__, __LINE__)));
      const auto results = at::_ops::_scaled_dot_product_flash_attention::call(
          pad_head(query), pad_head(key), pad_head(value), dropout_p, is_causal, false, factor);
      return cut_last(std::get<0>(results), width);
    }
    case at::SDPBackend::efficient_attention:
      return std::get<0>(at::_ops::_scaled_dot_product_efficient_attention::call(
          query, key, value, aligned(additive(mask, query), query, key), backward, dropout_p,
          is_causal, scale));
    case at::SDPBackend::cudnn_attention:
      return std::get<0>(at::_ops::_scaled_dot_product_cudnn_attention::call(
          query, key, value, additive(mask, query, kCudnnHidden), backward, dropout_p, is_causal,
          false, scale));
    default:
      return at::native::scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal,
                                                      scale, enable_gqa);
  }
}

}  // namespace

void install_fused_attention() {
  if (target().type == c10::DeviceType::CPU) return;  // its composition has a place for it
  install_composition<&attention>("aten::scaled_dot_product_attention", "");
}

}  // namespace torch_fl
