// Owns: the declaration of what the build generates from hot_operators.txt.
#pragma once

namespace torch_fl {

// Installs typed boxing for the hot operators that the target has a kernel for.
void install_typed_operators();

}  // namespace torch_fl
