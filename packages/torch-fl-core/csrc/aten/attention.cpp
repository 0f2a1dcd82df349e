// Owns: which scaled-dot-product attention runs. PyTorch asks a function per device and takes the
// slow math path where there is none; the answer here is the target's own.
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_ops.h>
#include <ATen/ops/_nested_tensor_from_mask_left_aligned_ops.h>

#include "aten/own_operators.h"
#include "boxing/relabeling.h"
#include "device/kernel_scope.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

constexpr auto kWrapped =
    c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::BatchedNestedTensor,
                         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});

int64_t choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
               std::optional<double> scale, bool enable_gqa) {
  const auto plain = [](const at::Tensor& tensor) {
    const auto keys = tensor.key_set();
    return tensor.device().type() == kFlagos && tensor.has_storage() &&
           !keys.has_any(c10::python_ks | kWrapped);
  };
  if (!plain(query) || !plain(key) || !plain(value) || (mask && !plain(*mask))) {
    // PyTorch asks without the dispatcher, so wrappers of functorch and of tensor subclasses come
    // here as they are, without memory. The target's choice reads what they say of themselves.
    return at::_ops::_fused_sdp_choice::redispatch(c10::DispatchKeySet(target().dense), query, key,
                                                   value, mask, dropout_p, is_causal, scale,
                                                   enable_gqa);
  }
  // Some implementations give no gradient for a mask.
  Relabeling call(Relabeling::Aliases::kWithGrad);
  const at::Tensor target_query = call.alias(query);
  const at::Tensor target_key = call.alias(key);
  const at::Tensor target_value = call.alias(value);
  const auto target_mask = mask ? std::optional(call.alias(*mask)) : std::nullopt;
  const KernelScope scope(call.device());
  return at::_ops::_fused_sdp_choice::call(target_query, target_key, target_value, target_mask,
                                           dropout_p, is_causal, scale, enable_gqa);
}

// Asked by PyTorch's Transformer encoder before it packs padded sequences into a nested tensor. flagos
// has no strided nested tensors: with this answer the encoder goes on with padded ones.
bool no_nested_from_mask(const at::Tensor&, const at::Tensor&) { return false; }

}  // namespace

void install_attention() {
  routing::Typed<at::_ops::_nested_tensor_from_mask_left_aligned>::install_core(
      &no_nested_from_mask);
  using at::native::_fused_sdp_choice_stub;
  at::native::RegisterPRIVATEUSE1Dispatch<
      std::remove_reference_t<decltype(_fused_sdp_choice_stub)>>(_fused_sdp_choice_stub, &choose);
}

}  // namespace torch_fl
