// Owns: the word by which a kernel says UNSUPPORTED.
#pragma once
#include "export.h"

namespace torch_fl::routing {

// The kernel that this thread is in does not support the call; it throws next, and the next route of
// the chain runs.
FLAGOS_API void refuse_call() noexcept;

}  // namespace torch_fl::routing
