// Owns: c10's device allocator for flagos: the runtime's memory, handed out as twins.
#include "memory/device_allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/set_ops.h>

#include <limits>

#include "device/kernel_scope.h"
#include "device/page_guard.h"
#include "device/runtime.h"
#include "memory/faults.h"
#include "memory/twin.h"

namespace torch_fl {
namespace {

class FlagosAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    const auto device = runtime().current_device();
    return data_ptr_over(new_twin(nbytes, device), device);
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    const page_guard::Opening opened_to(to);
    const page_guard::Opening opened_from(from);
    runtime().target_allocator()->copy_data(to, from, count);
  }

  bool initialized() override { return has_runtime() && runtime().has_memory(); }
  void emptyCache(c10::MempoolId_t) override { runtime().empty_cache(); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    // The target's allocator knows only its own pointers: it gets the twin's.
    if (data.get_deleter() != &release_twin) return;
    const auto* twin = static_cast<const c10::StorageImpl*>(data.get_context());
    runtime().record_stream(twin->data_ptr(), checked_device(stream.device_index()), stream.id());
  }
  DeviceStats getDeviceStats(DeviceIndex device) override {
    return runtime().memory_stats(checked_device(device));
  }
  void resetAccumulatedStats(DeviceIndex device) override {
    runtime().reset_accumulated_stats(checked_device(device));
  }
  void resetPeakStats(DeviceIndex device) override {
    runtime().reset_peak_stats(checked_device(device));
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override {
    return runtime().memory_info(checked_device(device));
  }
};

// A one-dimensional byte tensor of the target over the first `nbytes` of `twin`.
at::Tensor bytes_of(const StoragePtr& twin, int64_t nbytes, c10::Device device) {
  auto bytes = at::_ops::empty_memory_format::call({0}, at::kByte, at::kStrided, device,
                                                   std::nullopt, std::nullopt);
  const c10::SymInt size(nbytes);
  const c10::SymInt stride(1);
  return at::_ops::set__source_Storage_storage_offset::call(
      bytes, c10::Storage(twin), 0, c10::SymIntArrayRef(&size, 1), c10::SymIntArrayRef(&stride, 1));
}

}  // namespace

c10::DeviceAllocator* device_allocator() {
  static auto* allocator = new FlagosAllocator;
  return allocator;
}

void register_allocators() {
  c10::SetAllocator(kFlagos, device_allocator());
  // (Without a backend there is nothing to allocate, or to pin memory for. A target's devices are
  // not counted here: for some that is a start, after which no process may fork.)
  if (!runtime().is_usable()) return;
  faults::wrap_target_allocator();
  at::setHostAllocator(kFlagos, runtime().pinned_allocator());
}

void resize_storage(const c10::Storage& storage, size_t nbytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  // (Memory shared with another process or library.)
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  TORCH_CHECK(nbytes <= static_cast<size_t>(std::numeric_limits<ptrdiff_t>::max()),
              "Requested storage size (", static_cast<ptrdiff_t>(nbytes),
              ") cannot be represented as a size_t");
  const auto index = storage.device().index();
  const auto old_twin = twin_of(impl);
  auto twin = new_twin(nbytes, index);
  const auto kept = static_cast<int64_t>(std::min(nbytes, impl->nbytes()));
  if (kept > 0) {
    const auto device = target().device(index);
    auto to = bytes_of(twin, kept, device);
    const auto from = bytes_of(old_twin, kept, device);
    const page_guard::Opening opened_to(twin->data());
    const page_guard::Opening opened_from(old_twin->data());
    at::_ops::copy_::call(to, from, /*non_blocking=*/false);
  }
  impl->set_data_ptr_noswap(data_ptr_over(std::move(twin), index));
  impl->set_nbytes(nbytes);
}

}  // namespace torch_fl
