// Owns: the runtime of a backend that stands on a device which PyTorch already has.
#pragma once
#include <memory>

#include "device/runtime.h"

namespace torch_fl::delegate {

// Streams, events, memory and randomness are those of `target`, through interfaces that PyTorch has
// for every device: flagos:i is target:i, with one memory pool and one current stream. Throws when
// this PyTorch has no such device.
FLAGOS_API std::unique_ptr<Runtime> make_runtime(c10::DeviceType target,
                                                 bool foreach_takes_any_device);

}  // namespace torch_fl::delegate
