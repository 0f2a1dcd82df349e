// Owns: the question which scaled-dot-product attention the target would take.
#pragma once
#include <ATen/SDPBackend.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace torch_fl {

// The target's own answer for these tensors, which must have a likeness (aten/likeness.h).
at::SDPBackend target_attention(const at::Tensor& query, const at::Tensor& key,
                                const at::Tensor& value, const std::optional<at::Tensor>& mask,
                                double dropout_p, bool is_causal, std::optional<double> scale,
                                bool enable_gqa);

}  // namespace torch_fl
