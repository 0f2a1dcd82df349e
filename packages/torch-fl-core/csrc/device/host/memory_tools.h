// Owns: what users do to the host devices' memory beyond allocating: a share of it for the process,
// a look at every block, a history, a cache that can be switched off.
#pragma once
#include <c10/core/Device.h>

#include <vector>

#include "device/host/history.h"
#include "export.h"

namespace torch_fl::host {

struct BlockInfo {
  uintptr_t address = 0;
  size_t size = 0;       // bytes
  size_t requested = 0;  // bytes that a tensor asked for
  bool in_use = false;
  Context context;
};

// Memory that was taken from the system in one piece. Its blocks lie side by side and fill it.
struct SegmentInfo {
  c10::DeviceIndex device = 0;
  uintptr_t address = 0;
  size_t size = 0;  // bytes
  bool large = false;
  std::vector<BlockInfo> blocks;
};

struct Snapshot {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<MemoryEvent>> events;  // one list for each device
};

// Whether this process runs on host memory; nothing else here may be called otherwise.
FLAGOS_API bool in_use();

// The share, 0 to 1, of a device's memory that the process may reserve.
FLAGOS_API void set_memory_fraction(c10::DeviceIndex device, double fraction);
FLAGOS_API double memory_fraction(c10::DeviceIndex device);

FLAGOS_API void start_history(const HistoryOptions& options, bool clear);
FLAGOS_API void stop_history();
FLAGOS_API Snapshot snapshot(bool with_events);

// Whether freed blocks are kept for the next request; true at first.
FLAGOS_API void set_caching(bool on);
FLAGOS_API bool is_caching();

}  // namespace torch_fl::host
