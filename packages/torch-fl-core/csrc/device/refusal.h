// Owns: the one refusal of a device index that does not exist, for C++ and Python.
#pragma once
#include <cstdint>

#include "export.h"

namespace torch_fl {

// Throws c10::Error that names the index and the devices there are. Where there are none because no
// backend could be started, it throws that reason instead.
[[noreturn]] FLAGOS_API void refuse_device(int64_t index);

}  // namespace torch_fl
