// Owns: what the parts of the pretend device tell each other. It is a device type that PyTorch knows
// and this build of it does not use, on host memory, with everything that an accelerator registers.
// For tests of a runtime that stands on another device; never part of a wheel.
//
// It is as strict as a real driver: memory before initialisation is an internal assertion, choosing
// a device makes a context on it, and a stream of another device type is refused.
#pragma once
#include <ATen/core/Generator.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

namespace pretend {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;
using c10::StreamId;

constexpr auto kType = c10::DeviceType::HPU;
constexpr DeviceIndex kDevices = 2;

// -- what tests read: named counters, and named last values. Any thread.
void count(const std::string& what, int64_t by = 1);
void note(const std::string& what, int64_t value);
int64_t told(const std::string& what);  // 0 for what was never counted or noted

// -- devices. A context is what a device has once somebody has worked on it. As with CUDA, making
// another device current makes a context there, and going back to one does not.
DeviceIndex current_device();
void set_device(DeviceIndex device);
void restore_device(DeviceIndex device) noexcept;
void make_context(DeviceIndex device);
bool has_context(DeviceIndex device);
void initialize();
bool initialized();

class DeviceScope {
 public:
  explicit DeviceScope(DeviceIndex device) : previous_(current_device()) {
    if (device != previous_) set_device(device);
  }
  ~DeviceScope() { restore_device(previous_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  DeviceIndex previous_;
};

// -- streams. Work is complete when the call returns, unless a test holds the device.
StreamId current_stream(DeviceIndex device);
void hold(bool on);
// From now on every wait for the device, and every kernel, reports this; empty: the device is well.
void break_with(const std::string& fault);
void check_fault();

// -- memory
void set_memory_limit(int64_t bytes);     // of each device
DeviceIndex device_of(const void* data);  // -1: not memory of this device
StreamId stream_of(const void* data);     // on which it was allocated
bool is_pinned(const void* data);
void record_use(const c10::DataPtr& data, Stream stream);
void record_pinned_use(const c10::DataPtr& data, Stream stream);

// -- randomness: the CPU's engine under this device's name
const at::Generator& default_generator(DeviceIndex device);
at::Generator new_generator(DeviceIndex device);
at::Generator engine_of(const at::Generator& generator);

}  // namespace pretend
