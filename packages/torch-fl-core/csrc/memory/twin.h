// Owns: the pair of storages behind a flagos tensor. The *twin* is a storage of the target that
// owns the memory; the flagos storage's DataPtr owns a reference to the twin. So the target's
// storage is one pointer away from any flagos storage, without a map or a lock, and it is the same
// for all views, so that PyTorch's overlap checks go on working below.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include "device/target.h"

namespace torch_fl {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

// Raises what was left to be said by whoever took a tensor's memory away: PyTorch does, of results
// that a later run of a recorded graph overwrites.
[[noreturn]] void refuse_without_memory(const c10::TensorImpl& tensor);

inline c10::StorageImpl* storage_of(const c10::TensorImpl& tensor) {
  auto* const storage = tensor.unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(storage == nullptr)) refuse_without_memory(tensor);
  return storage;
}
inline c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return storage_of(*tensor.unsafeGetTensorImpl());
}

// The deleter of every flagos DataPtr; it is also the mark by which one is recognised.
void release_twin(void* twin);

// A flagos DataPtr over `twin`, whose reference it takes.
c10::DataPtr data_ptr_over(StoragePtr twin, c10::DeviceIndex device);

// A flagos storage over `twin`, resizable.
c10::Storage storage_over(StoragePtr twin, c10::DeviceIndex device);

// A target storage with `nbytes` of fresh memory of `device`.
StoragePtr new_twin(size_t nbytes, c10::DeviceIndex device);

// For a flagos storage whose data somebody else made (a deserialiser, an external buffer): a
// target storage that borrows the data and keeps `storage` alive.
StoragePtr borrowed_twin(c10::StorageImpl* storage);

// The twin that a flagos storage holds, or null where somebody else made its data.
inline c10::StorageImpl* held_twin(c10::StorageImpl* storage) {
  const auto& data = storage->_mutable_data_ptr_no_checks();
  return C10_LIKELY(data.get_deleter() == &release_twin)
             ? static_cast<c10::StorageImpl*>(data.get_context())
             : nullptr;
}

inline StoragePtr twin_of(c10::StorageImpl* storage) {
  auto* twin = held_twin(storage);
  return C10_LIKELY(twin != nullptr) ? StoragePtr::reclaim_copy(twin) : borrowed_twin(storage);
}

}  // namespace torch_fl
