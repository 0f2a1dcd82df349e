// Owns: flagos tensors handed to others as tensors of the target, and the way back, outside of a
// call. Both views share the memory for as long as either lives.
#pragma once
#include <ATen/core/Tensor.h>

#include "device/target.h"
#include "export.h"

namespace torch_fl {

// The target's tensor over the memory of a strided flagos tensor; no autograd, same strides,
// conj and neg bits.
FLAGOS_API at::Tensor to_target(const at::Tensor& tensor);

// The flagos tensor over the memory of a strided tensor of the target; no autograd. `device` says
// whose it is where the target's tensors have no index.
FLAGOS_API at::Tensor from_target(const at::Tensor& tensor, c10::DeviceIndex device);

// Puts the memory of `memory`, a tensor of the target with the same content, in the place of that of
// `tensor`'s storage. All views of the storage follow; it cannot be resized from then on. `memory`
// is left without any.
FLAGOS_API void replace_memory(const at::Tensor& tensor, const at::Tensor& memory);

}  // namespace torch_fl
