// Owns: what a user can set of the host runtime, the embedded backend on CPU memory.
#pragma once
#include <memory>

#include "device/runtime.h"

namespace torch_fl::host {

struct Options {
  int device_count = 1;     // FLAGOS_HOST_DEVICES, 1..64
  size_t memory_limit = 0;  // bytes for each device; 0: the machine's memory
  bool guard = false;       // FLAGOS_HOST_GUARD
};

FLAGOS_API std::unique_ptr<Runtime> make_runtime(const Options& options);

}  // namespace torch_fl::host
