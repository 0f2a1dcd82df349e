// Owns: turning the process's PrivateUse1 into flagos.
#pragma once
#include <memory>

#include "device/runtime.h"
#include "export.h"

namespace torch_fl {

// Registers everything, once per process. Throws before it has changed anything when another
// backend owns PrivateUse1.
FLAGOS_API void activate(std::unique_ptr<Runtime> runtime);

}  // namespace torch_fl
