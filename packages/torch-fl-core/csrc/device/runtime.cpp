// Owns: the one runtime of the process.
#include "device/runtime.h"

#include <atomic>

#include "device/refusal.h"

namespace torch_fl {
namespace {

// Never destroyed: tensors may be freed by static destructors that run after ours.
Runtime* g_runtime = nullptr;

// So many devices are known to exist. Guards are asked with every operator's backward, and a count
// never falls.
std::atomic<DeviceIndex> g_known{0};

}  // namespace

Runtime& runtime() {
  TORCH_CHECK(g_runtime != nullptr, "flagos is not activated in this process: `import torch_fl`.");
  return *g_runtime;
}

bool has_runtime() noexcept { return g_runtime != nullptr; }

void set_runtime(std::unique_ptr<Runtime> runtime) {
  TORCH_CHECK(g_runtime == nullptr, "flagos is already activated in this process.");
  g_target = make_target(runtime->target_type());
  g_target.foreach_takes_any_device = runtime->foreach_takes_any_device();
  g_runtime = runtime.release();
}

DeviceIndex checked_device(DeviceIndex device) {
  if (C10_LIKELY(device >= 0 && device < g_known.load(std::memory_order_relaxed))) return device;
  if (device == -1) return runtime().current_device();
  const auto count = runtime().device_count();
  if (device < 0 || device >= count) refuse_device(device);
  g_known.store(count, std::memory_order_relaxed);
  return device;
}

void refuse_device(int64_t index) {
  const int count = runtime().device_count();
  if (count == 0) runtime().initialize();  // says why there is none
  const auto have = count > 1    ? "0 to " + std::to_string(count - 1)
                    : count == 1 ? "only 0"
                                 : "none";
  TORCH_CHECK(false, "Invalid flagos device index ", index, ": ", count,
              count == 1 ? " device" : " devices", " available (", have, ")");
}

}  // namespace torch_fl
