// Owns: making and releasing twins.
#include "memory/twin.h"

#include "device/page_guard.h"
#include "device/runtime.h"
#include "memory/device_allocator.h"
#include "memory/faults.h"
#include "memory/free_list.h"

namespace torch_fl {
namespace {

// A flagos storage. Nearly every call makes one.
struct StorageImpl final : c10::StorageImpl {
  using c10::StorageImpl::StorageImpl;
  static void* operator new(size_t) { return FreeList<sizeof(StorageImpl)>::take(); }
  static void operator delete(void* memory) noexcept {
    FreeList<sizeof(StorageImpl)>::give(memory);
  }
};

void release_borrowed(void* owner) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(owner));
}

}  // namespace

void refuse_without_memory(const c10::TensorImpl& tensor) {
  static_cast<void>(tensor.storage());
  TORCH_CHECK(false, "This flagos tensor has no memory.");
}

void release_twin(void* twin) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(twin));
}

c10::DataPtr data_ptr_over(StoragePtr twin, c10::DeviceIndex device) {
  void* data = twin->_mutable_data_ptr_no_checks().get();
  return {data, twin.release(), &release_twin, c10::Device(kFlagos, device)};
}

c10::Storage storage_over(StoragePtr twin, c10::DeviceIndex device) {
  const auto nbytes = static_cast<int64_t>(twin->nbytes());
  return c10::Storage(c10::make_intrusive<StorageImpl>(c10::StorageImpl::use_byte_size_t(), nbytes,
                                                       data_ptr_over(std::move(twin), device),
                                                       device_allocator(), /*resizable=*/true));
}

StoragePtr new_twin(size_t nbytes, c10::DeviceIndex device) {
  faults::before_allocation(nbytes, device);
  auto data = runtime().allocate(nbytes, device);
  if (C10_UNLIKELY(page_guard::enabled())) page_guard::adopt(data.get());
  return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                               static_cast<int64_t>(nbytes), std::move(data),
                                               faults::target_allocator(), /*resizable=*/true);
}

StoragePtr borrowed_twin(c10::StorageImpl* storage) {
  auto keep = StoragePtr::reclaim_copy(storage);
  void* data = storage->_mutable_data_ptr_no_checks().get();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage->nbytes()),
      c10::DataPtr(data, keep.release(), &release_borrowed,
                   target().device(storage->device().index())),
      faults::target_allocator(), /*resizable=*/true);
}

}  // namespace torch_fl
