// Owns: "this thread is inside a kernel that works for flagos device i". The host runtime's CPU
// allocator reads it, so that what a kernel allocates belongs to that device.
#pragma once
#include <c10/core/Device.h>

namespace torch_fl {

// initial-exec: the library is loaded once, early, and one byte fits the loader's reserve; every
// other model calls into the loader on each access. constinit: or each would ask for an initializer.
extern constinit thread_local c10::DeviceIndex t_kernel_device
    __attribute__((tls_model("initial-exec")));

class KernelScope {
 public:
  explicit KernelScope(c10::DeviceIndex device) : previous_(t_kernel_device) {
    t_kernel_device = device;
  }
  ~KernelScope() { t_kernel_device = previous_; }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  c10::DeviceIndex previous_;
};

}  // namespace torch_fl
