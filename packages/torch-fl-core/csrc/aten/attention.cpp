// Owns: which scaled-dot-product attention runs. PyTorch asks a function per device and takes the
// slow math path where there is none; the answer here is the target's own.
#include "aten/attention.h"

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>

#include "aten/likeness.h"
#include "aten/own_operators.h"
#include "aten/plain.h"
#include "device/kernel_scope.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

// What PyTorch's composition asks. Fused implementations of an accelerator it would give only to
// devices that it knows by name: fused_attention.cpp stands before it there.
int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
               std::optional<double> scale, bool enable_gqa) {
  if (target().type != c10::DeviceType::CPU) return static_cast<int64_t>(at::SDPBackend::math);
  if (!is_plain(query) || !is_plain(key) || !is_plain(value) || (mask && !is_plain(*mask))) {
    // Wrappers come here as they are. The target's choice reads what they say of themselves.
    return at::_ops::_fused_sdp_choice::redispatch(c10::DispatchKeySet(target().dense), query, key,
                                                   value, mask, dropout_p, is_causal, scale,
                                                   enable_gqa);
  }
  return static_cast<int64_t>(
      target_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa));
}

}  // namespace

at::SDPBackend target_attention(const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                double dropout_p, bool is_causal, std::optional<double> scale,
                                bool enable_gqa) {
  // Some implementations give no gradient for a mask.
  const bool differentiable = query.requires_grad() || key.requires_grad() ||
                              value.requires_grad() || (mask && mask->requires_grad());
  Likenesses like(differentiable ? Relabeling::Aliases::kWithGrad : Relabeling::Aliases::kLight);
  const at::Tensor target_query = like.of(query);
  const at::Tensor target_key = like.of(key);
  const at::Tensor target_value = like.of(value);
  const auto target_mask = like.of(mask);
  const KernelScope scope(like.device());
  // Below what tracers watch: the question is no part of what they record.
  return static_cast<at::SDPBackend>(at::_ops::_fused_sdp_choice::redispatch(
      c10::DispatchKeySet(target().dense), target_query, target_key, target_value, target_mask,
      dropout_p, is_causal, scale, enable_gqa));
}

void install_attention() {
  using at::native::_fused_sdp_choice_stub;
  at::native::RegisterPRIVATEUSE1Dispatch<
      std::remove_reference_t<decltype(_fused_sdp_choice_stub)>>(_fused_sdp_choice_stub, &choose);
}

}  // namespace torch_fl
