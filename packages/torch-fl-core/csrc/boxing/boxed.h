// Owns: boxing for any operator, on the dispatcher's stack.
#pragma once
#include "routing/operator.h"

namespace torch_fl {

// Boxing as an operator's route on the stack. The second for operators whose kernel looks at
// requires_grad.
void boxed_kernel(routing::Operator& op, const c10::OperatorHandle& handle,
                  torch::jit::Stack* stack);
void boxed_kernel_with_grad(routing::Operator& op, const c10::OperatorHandle& handle,
                            torch::jit::Stack* stack);
// The same for a kernel that somebody registered: `kernel` carries it, and `op` it stands for.
void boxed_kernel_for(routing::Operator& op, const c10::OperatorHandle& kernel,
                      torch::jit::Stack* stack);
// The same for an operator that is not PyTorch's own. Refuses one that the target has no kernel for.
void boxed_kernel_of_others(routing::Operator& op, const c10::OperatorHandle& handle,
                            torch::jit::Stack* stack);

// Installs boxing for every operator that the target has a kernel for, under every flagos key, and
// the fallback for operators that are registered later. After all typed and own kernels.
void install_boxed_boxing();

}  // namespace torch_fl
