// Owns: flagos tensors as the target's and back, for strided tensors.
#include "boxing/interchange.h"

#include "boxing/alias.h"
#include "device/runtime.h"
#include "memory/faults.h"

namespace torch_fl {
namespace {

void check_strided(const at::Tensor& tensor, c10::DispatchKey key, c10::DeviceType type) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  const auto device = c10::DeviceTypeName(type, /*lower_case=*/true);
  TORCH_CHECK_VALUE(tensor.device().type() == type, "Expected a tensor on ", device,
                    ", but got one on ", tensor.device());
  TORCH_CHECK_NOT_IMPLEMENTED(
      impl->key_set().has(key) && impl->has_storage() && tensor.layout() == at::kStrided,
      "Only strided tensors on ", device, " share their memory with others; this one is ",
      tensor.layout(), tensor.is_quantized() ? ", quantized." : ".");
}

// The twin as the storage's own: data that somebody else made moves into a twin.
StoragePtr own_twin(c10::StorageImpl* storage) {
  if (auto* held = held_twin(storage)) return StoragePtr::reclaim_copy(held);
  const auto index = storage->device().index();
  auto data = storage->set_data_ptr(c10::DataPtr(nullptr, c10::Device(kFlagos, index)));
  data.unsafe_set_device(target().device(index));
  auto twin = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage->nbytes()), std::move(data),
      faults::target_allocator(), storage->resizable());
  storage->set_data_ptr_noswap(data_ptr_over(twin, index));
  return twin;
}

}  // namespace

at::Tensor to_target(const at::Tensor& tensor) {
  check_strided(tensor, c10::DispatchKey::PrivateUse1, kFlagos);
  auto* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(c10::make_intrusive<AliasImpl>(own_twin(storage_of(tensor)), *impl));
}

at::Tensor from_target(const at::Tensor& tensor, c10::DeviceIndex device) {
  check_strided(tensor, target().dense, target().type);
  auto* impl = tensor.unsafeGetTensorImpl();
  auto result = impl->shallow_copy_and_detach(c10::VariableVersion(0),
                                              /*allow_tensor_metadata_change=*/true);
  const auto index = checked_device(target().indexed ? tensor.device().index() : device);
  auto* const twin = storage_of(tensor);
  auto storage = storage_over(StoragePtr::reclaim_copy(twin), index);
  storage.unsafeGetStorageImpl()->set_resizable(twin->resizable());
  AliasImpl::relabel(*result, std::move(storage), index);
  return at::Tensor(std::move(result));
}

void replace_memory(const at::Tensor& tensor, const at::Tensor& memory) {
  check_strided(tensor, c10::DispatchKey::PrivateUse1, kFlagos);
  check_strided(memory, target().dense, target().type);
  auto* storage = storage_of(tensor);
  auto* source = storage_of(memory);
  TORCH_CHECK_VALUE(source->nbytes() == storage->nbytes(), "Expected ", storage->nbytes(),
                    " bytes, but got ", source->nbytes(), ".");
  const auto twin = own_twin(storage);
  twin->set_data_ptr_noswap(source->set_data_ptr(c10::DataPtr(nullptr, source->device())));
  source->set_nbytes(0);
  twin->set_resizable(false);
  storage->set_data_ptr_noswap(data_ptr_over(twin, storage->device().index()));
  storage->set_resizable(false);
}

}  // namespace torch_fl
