// Owns: the process's CPU allocator while flagos runs on host memory.
#pragma once
#include <c10/core/Allocator.h>

#include <deque>

#include "device/host/pool.h"

namespace torch_fl::host {

// Puts an allocator in front of PyTorch's own for the CPU: inside a kernel that works for flagos
// device i (device/kernel_scope.h) memory comes from `pools[i]`, elsewhere from the allocator that
// was there before. So a kernel's results are device memory from the start: counted, limited and,
// with FLAGOS_HOST_GUARD, protected. Once per process.
void install_cpu_allocator(std::deque<Pool>& pools);

// Each device's pool, by index; null where flagos does not run on host memory.
std::deque<Pool>* device_pools();

// Frees a block of the arena, or hands the pointer to the allocator that was there before.
void free_any(void* data);

// A block of `pool` as CPU data.
c10::DataPtr allocate_from(Pool& pool, size_t nbytes);

// What CPU storages are made with.
c10::Allocator* cpu_allocator();

}  // namespace torch_fl::host
