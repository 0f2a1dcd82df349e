// Owns: the runtime of a process whose backend could not be started.
#pragma once
#include <memory>
#include <string>

#include "device/runtime.h"

namespace torch_fl::unavailable {

// No devices. Whatever needs one throws `reason`, which says what failed and what to do.
FLAGOS_API std::unique_ptr<Runtime> make_runtime(std::string reason);

}  // namespace torch_fl::unavailable
