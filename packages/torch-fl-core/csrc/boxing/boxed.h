// Owns: boxing for any operator, on the dispatcher's stack.
#pragma once

namespace torch_fl {

// Installs boxing for every operator that the target has a kernel for, under every flagos key, and
// the fallback for operators that are registered later. After all typed and own kernels.
void install_boxed_boxing();

}  // namespace torch_fl
