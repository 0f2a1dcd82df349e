// Owns: the process's CPU allocator while flagos runs on host memory.
#include "device/host/cpu_allocator.h"

#include <c10/core/CPUAllocator.h>

#include "device/kernel_scope.h"

namespace torch_fl {

constinit thread_local c10::DeviceIndex t_kernel_device = -1;

namespace host {
namespace {

class KernelAwareAllocator final : public c10::Allocator {
 public:
  KernelAwareAllocator(std::deque<Pool>& pools, c10::Allocator* ordinary)
      : pools_(pools), ordinary_(ordinary) {}

  c10::DataPtr allocate(size_t nbytes) override {
    const auto device = t_kernel_device;
    if (C10_LIKELY(device < 0) || nbytes == 0) return ordinary_->allocate(nbytes);
    return allocate_from(pools_[static_cast<size_t>(device)], nbytes);
  }
  // oneDNN allocates and frees through the raw interface, inside kernels and outside: one deleter
  // must take both kinds of pointer.
  c10::DeleterFnPtr raw_deleter() const override { return &free_any; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }
  c10::Allocator* ordinary() const { return ordinary_; }
  std::deque<Pool>& pools() const { return pools_; }

 private:
  std::deque<Pool>& pools_;
  c10::Allocator* ordinary_;
};

// Never destroyed: CPU tensors outlive our static destructors.
KernelAwareAllocator* g_allocator = nullptr;

}  // namespace

void install_cpu_allocator(std::deque<Pool>& pools) {
  g_allocator = new KernelAwareAllocator(pools, c10::GetCPUAllocator());
  c10::SetCPUAllocator(g_allocator, /*priority=*/std::numeric_limits<uint8_t>::max());
}

std::deque<Pool>* device_pools() {
  return g_allocator == nullptr ? nullptr : &g_allocator->pools();
}

void free_any(void* data) {
  if (auto* segment = Arena::instance().segment_of(data)) {
    segment->pool->free(segment, data);
  } else {
    g_allocator->ordinary()->raw_deallocate(data);
  }
}

c10::DataPtr allocate_from(Pool& pool, size_t nbytes) {
  void* data = nbytes == 0 ? nullptr : pool.allocate(nbytes);
  return {data, data, &free_any, c10::Device(c10::DeviceType::CPU)};
}

c10::Allocator* cpu_allocator() { return g_allocator; }

}  // namespace host
}  // namespace torch_fl
