// Owns: the Runtime interface, all that a kind of backend must say about devices, queues, memory
// and randomness. Guard, hooks, allocators and generators are written once, on top of it.
//
// Device arguments are flagos indices, already checked by the caller. Stream ids are the runtime's
// own. Memory is handed out as the target's storage data: core makes the flagos view of it.
#pragma once
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <memory>
#include <string>
#include <utility>

#include "device/target.h"
#include "export.h"

namespace torch_fl {

using c10::DeviceIndex;
using c10::StreamId;
using DeviceStats = c10::CachingDeviceAllocator::DeviceStats;

struct DeviceProperties {
  std::string name;
  size_t total_memory = 0;  // bytes
  int multi_processor_count = 0;
  int major = 0;
  int minor = 0;
  bool is_integrated = false;  // device memory is the host's own
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual c10::DeviceType target_type() const noexcept = 0;
  // See Target.
  virtual bool foreach_takes_any_device() const noexcept { return false; }

  // False where there is only a reason why there is none.
  virtual bool is_usable() const noexcept { return true; }

  // Starts what must run before the first allocation; idempotent and thread-safe.
  virtual void initialize() = 0;

  // devices
  virtual DeviceIndex device_count() const noexcept = 0;
  virtual DeviceIndex current_device() const = 0;
  virtual void set_device(DeviceIndex device) = 0;
  // Back to a device that was current before. Never throws, and starts nothing on a device where
  // nothing has run yet (a context may cost hundreds of megabytes).
  virtual void restore_device(DeviceIndex device) noexcept = 0;
  // Whether anything has run on `device` yet.
  virtual bool has_context(DeviceIndex device) = 0;
  virtual DeviceProperties properties(DeviceIndex device) = 0;
  virtual c10::DeviceCapability capability(DeviceIndex device) = 0;
  virtual void synchronize_device(DeviceIndex device) = 0;

  // streams
  virtual StreamId current_stream(DeviceIndex device) = 0;
  virtual StreamId default_stream(DeviceIndex device) = 0;
  virtual StreamId pooled_stream(DeviceIndex device, bool high_priority) = 0;
  virtual StreamId new_stream(DeviceIndex device, int priority) = 0;
  // Of streams that this runtime makes itself; 0 where they are the target's, which says it.
  virtual int stream_priority(StreamId) const { return 0; }
  virtual StreamId exchange_stream(DeviceIndex device, StreamId stream) = 0;
  virtual bool query_stream(DeviceIndex device, StreamId stream) = 0;
  virtual void synchronize_stream(DeviceIndex device, StreamId stream) = 0;
  virtual bool is_capturing(DeviceIndex device, StreamId stream) = 0;
  virtual void* native_stream(DeviceIndex device, StreamId stream) = 0;

  // events: opaque to core, made by the first record()
  virtual void record(void** event, DeviceIndex device, StreamId stream, c10::EventFlag flag) = 0;
  virtual void block(void* event, DeviceIndex device, StreamId stream) = 0;
  virtual bool query_event(void* event) = 0;
  virtual void synchronize_event(void* event) = 0;
  virtual double elapsed_ms(void* start, void* end, DeviceIndex device) = 0;
  virtual void destroy_event(void* event, DeviceIndex device) noexcept = 0;

  // memory. `allocate` gives the target's data on the current stream; `target_allocator` is what
  // the target's storages are made with, for kernels that resize them.
  virtual c10::DataPtr allocate(size_t nbytes, DeviceIndex device) = 0;
  virtual c10::Allocator* target_allocator() = 0;
  // Whether there can be any yet: asking for statistics starts nothing.
  virtual bool has_memory() { return true; }
  virtual void empty_cache() = 0;
  virtual void record_stream(const c10::DataPtr& target_data, DeviceIndex device,
                             StreamId stream) = 0;
  virtual DeviceStats memory_stats(DeviceIndex device) = 0;
  virtual void reset_peak_stats(DeviceIndex device) = 0;
  virtual void reset_accumulated_stats(DeviceIndex device) = 0;
  virtual std::pair<size_t, size_t> memory_info(DeviceIndex device) = 0;  // free, total bytes
  virtual DeviceIndex device_of(const void* data) = 0;                    // -1: not device memory
  virtual at::HostAllocator* pinned_allocator() = 0;
  virtual bool is_pinned(const void* data) = 0;

  // randomness: generators of the target, one default per device
  virtual at::Generator default_generator(DeviceIndex device) = 0;
  virtual at::Generator new_generator(DeviceIndex device) = 0;
};

// The process's runtime. `runtime()` may be called only after activation.
FLAGOS_API Runtime& runtime();
FLAGOS_API bool has_runtime() noexcept;
void set_runtime(std::unique_ptr<Runtime> runtime);

// Resolves "no index" to the current device and refuses an index that does not exist, naming how
// many there are.
FLAGOS_API DeviceIndex checked_device(DeviceIndex device);

}  // namespace torch_fl
