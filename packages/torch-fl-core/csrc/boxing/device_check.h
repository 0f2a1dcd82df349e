// Owns: PyTorch's device rules for calls that are not boxed: on other routes tensors of several
// devices must not pass silently either.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

namespace torch_fl {

// Throws what boxing would throw for the arguments of a call.
void check_devices(const c10::OperatorHandle& handle, c10::ArrayRef<c10::IValue> arguments);

}  // namespace torch_fl
