// Owns: c10's device allocator for flagos, and resizing a storage.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Storage.h>

namespace torch_fl {

c10::DeviceAllocator* device_allocator();

// Once per process: flagos' device and pinned allocators become PyTorch's.
void register_allocators();

// Gives `storage` new memory of `nbytes` on its own device and keeps what fits of the old content.
void resize_storage(const c10::Storage& storage, size_t nbytes);

}  // namespace torch_fl
