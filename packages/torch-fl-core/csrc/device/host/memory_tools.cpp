// Owns: applying the tools to the pools of all devices.
#include "device/host/memory_tools.h"

#include <mutex>

#include "device/host/cpu_allocator.h"
#include "device/host/pool.h"

namespace torch_fl::host {
namespace {

std::mutex g_settings_mutex;  // held while what all pools share is changed
bool g_recording = false;
bool g_caching = true;

void look_again() { g_watched.store(g_recording || !g_caching, std::memory_order_release); }

Pool& pool(c10::DeviceIndex device) { return (*device_pools())[static_cast<size_t>(device)]; }

}  // namespace

bool in_use() { return device_pools() != nullptr; }

void set_memory_fraction(c10::DeviceIndex device, double fraction) {
  pool(device).set_fraction(fraction);
}

double memory_fraction(c10::DeviceIndex device) { return pool(device).fraction(); }

void start_history(const HistoryOptions& options, bool clear) {
  const std::lock_guard lock(g_settings_mutex);
  gather_with(options.stacks, options.gather);
  for (auto& pool : *device_pools()) pool.start_history(options, clear);
  g_recording = true;
  look_again();
}

void stop_history() {
  const std::lock_guard lock(g_settings_mutex);
  g_recording = false;
  look_again();
  gather_with(Stacks::kNone, nullptr);
  for (auto& pool : *device_pools()) pool.stop_history();
}

Snapshot snapshot(bool with_events) {
  Snapshot result;
  c10::DeviceIndex device = 0;
  for (auto& pool : *device_pools()) {
    pool.add_to(result, device++, with_events);
  }
  return result;
}

void set_caching(bool on) {
  const std::lock_guard lock(g_settings_mutex);
  g_caching = on;
  for (auto& pool : *device_pools()) pool.set_caching(on);
  look_again();
}

bool is_caching() {
  const std::lock_guard lock(g_settings_mutex);
  return g_caching;
}

}  // namespace torch_fl::host
