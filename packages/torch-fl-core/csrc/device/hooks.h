// Owns: PyTorch's accelerator hooks for flagos.
#pragma once
#include <c10/core/Storage.h>

namespace torch_fl {

// Storages belong to the layer above, so that layer says how one is resized.
using ResizeStorage = void(const c10::Storage& storage, size_t nbytes);

// Once per process; the hooks live for ever.
void register_hooks(ResizeStorage* resize);

}  // namespace torch_fl
