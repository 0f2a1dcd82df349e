// Owns: whether a tensor is flagos memory itself. Wrappers of functorch and of tensor subclasses reach
// functions that PyTorch asks without its dispatcher, and have none.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

#include "device/target.h"

namespace torch_fl {

constexpr auto kWrappers =
    c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::BatchedNestedTensor,
                         c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::Functionalize});

inline bool is_plain(const at::Tensor& tensor) {
  return tensor.device().type() == kFlagos && tensor.has_storage() &&
         !tensor.key_set().has_any(c10::python_ks | kWrappers);
}

}  // namespace torch_fl
