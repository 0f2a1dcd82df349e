// Owns: device allocations that fail on purpose, for tests of what happens then. It stands where
// device memory passes whatever the runtime: in front of the runtime for what core allocates, and,
// where the target's kernels take their memory through a plain c10::Allocator (the CPU's), in front
// of that one for their results and for storages that they resize. A target with a caching
// allocator of its own (a delegating backend's) is not wrapped: PyTorch finds that one by its type.
#pragma once
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "device/runtime.h"

namespace torch_fl::faults {

// While armed, allocations of more than 0 bytes on `device` (any, where it is not given), by any
// thread, are numbered from 1. Those from `first` on, `times` of them, fail as memory that has run
// out does: where `recovers`, the cache is emptied and the retry succeeds; otherwise
// c10::OutOfMemoryError is thrown.
struct Plan {
  int64_t first = 1;
  int64_t times = 1;
  bool recovers = false;
  std::optional<c10::DeviceIndex> device;
};

struct Counts {
  int64_t seen = 0;
  int64_t failed = 0;
};

// std::nullopt disarms. The counts are those of the plan that ends; c10::Error where a plan is
// given while another one is armed.
FLAGOS_API Counts arm(std::optional<Plan> plan);
FLAGOS_API Counts counts();

extern std::atomic<bool> g_armed;

// Counts an allocation and throws when it is to fail.
void count(size_t nbytes, c10::DeviceIndex device);

inline void before_allocation(size_t nbytes, c10::DeviceIndex device) {
  if (C10_UNLIKELY(g_armed.load(std::memory_order_relaxed))) count(nbytes, device);
}

// Once per process, after the runtime is set.
void wrap_target_allocator();

// What the target's storages are made with: the runtime's allocator, wrapped where that can be.
extern c10::Allocator* g_wrapped;
inline c10::Allocator* target_allocator() {
  return C10_LIKELY(g_wrapped != nullptr) ? g_wrapped : runtime().target_allocator();
}

}  // namespace torch_fl::faults
