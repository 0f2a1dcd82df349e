// Owns: which of PyTorch's compositions are boxed whole, and which operators span devices.
#pragma once
#include <ATen/core/operator_name.h>

namespace torch_fl {

// True for an operator that has no kernel of its own on the target but must run there as a whole:
// it chooses an implementation by device, uses a device's kernel table directly, or would cross
// the boxing boundary many times. Only CompositeExplicitAutograd operators qualify: autograd is
// lost when a CompositeImplicitAutograd one is registered.
bool boxed_whole(const c10::OperatorName& name);

// True for an operator whose composition chooses by device, and goes wrong on flagos.
bool composes_by_device(const c10::OperatorName& name);

// True for an operator whose tensors may lie on several devices, in groups.
bool spans_devices(const c10::OperatorName& name);

// True for an operator whose kernel on the target looks at requires_grad of its arguments (to choose
// an implementation, or what to save): its aliases must tell.
bool reads_requires_grad(const c10::OperatorName& name);

}  // namespace torch_fl
