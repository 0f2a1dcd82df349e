// Owns: the one runtime of the process.
#include "device/runtime.h"

namespace torch_fl {
namespace {

// Never destroyed: tensors may be freed by static destructors that run after ours.
Runtime* g_runtime = nullptr;

}  // namespace

Runtime& runtime() {
  TORCH_CHECK(g_runtime != nullptr, "flagos is not activated in this process: `import torch_fl`.");
  return *g_runtime;
}

bool has_runtime() noexcept { return g_runtime != nullptr; }

void set_runtime(std::unique_ptr<Runtime> runtime) {
  TORCH_CHECK(g_runtime == nullptr, "flagos is already activated in this process.");
  g_target = make_target(runtime->target_type());
  g_runtime = runtime.release();
}

DeviceIndex checked_device(DeviceIndex device) {
  auto& current = runtime();
  if (device == -1) return current.current_device();
  const auto count = current.device_count();
  if (C10_UNLIKELY(count == 0)) current.initialize();  // says why there is none
  TORCH_CHECK(device >= 0 && device < count, "Invalid flagos device index ",
              static_cast<int>(device), ": this process has ", static_cast<int>(count),
              count == 1 ? " flagos device (flagos:0)." : " flagos devices, numbered from 0.");
  return device;
}

}  // namespace torch_fl
