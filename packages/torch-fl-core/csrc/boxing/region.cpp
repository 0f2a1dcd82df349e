// Owns: the boundary of a compiled region.
#include "boxing/region.h"

#include "boxing/alias.h"
#include "boxing/relabeling.h"
#include "device/page_guard.h"
#include "device/runtime.h"

namespace torch_fl {

Region::Region(c10::DeviceIndex device) : kernel_(device) {}

Region::~Region() {
  for (const auto& [data, life] : opened_) page_guard::close(data, life);
}

at::Tensor Region::enter(const at::Tensor& tensor, bool written) {
  auto& impl = *tensor.unsafeGetTensorImpl();
  TORCH_CHECK_NOT_IMPLEMENTED(impl.key_set().has(c10::DispatchKey::PrivateUse1),
                              "Compiled code takes strided flagos tensors; this one is ",
                              impl.layout(), ".");
  auto* const storage = storage_of(impl);
  auto twin = twin_of(storage);
  if (C10_UNLIKELY(page_guard::enabled())) {
    opened_.emplace_back(twin->data(), page_guard::open(twin->data()));
  }
  WeakStorage weak_twin(twin);
  auto alias =
      c10::intrusive_ptr<c10::TensorImpl>(c10::make_intrusive<AliasImpl>(std::move(twin), impl));
  inputs_.push_back({.alias = WeakTensor(alias),
                     .original = WeakTensor(tensor.getIntrusivePtr()),
                     .twin = std::move(weak_twin),
                     .storage = WeakStorage(StoragePtr::reclaim_copy(storage)),
                     .written = written ? at::Tensor(alias) : at::Tensor()});
  return at::Tensor(std::move(alias));
}

const Region::Input* Region::input_of(const c10::intrusive_ptr_target* part) {
  if (input_of_.empty()) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      input_of_.emplace(inputs_[i].alias._unsafe_get_target(), i);
      input_of_.emplace(inputs_[i].twin._unsafe_get_target(), i);
    }
  }
  const auto found = input_of_.find(part);
  return found == input_of_.end() ? nullptr : &inputs_[found->second];
}

at::Tensor Region::original_of(const c10::TensorImpl* alias) {
  const Input* input = input_of(alias);
  if (input == nullptr) return {};
  auto original = input->original.lock();
  return original ? at::Tensor(std::move(original)) : at::Tensor();
}

c10::Storage Region::known(c10::StorageImpl* twin) {
  for (const auto& storage : made_) {
    if (held_twin(storage.unsafeGetStorageImpl()) == twin) return storage;
  }
  const Input* input = input_of(twin);
  if (input == nullptr) return {};
  // Expired where the caller has given its tensor up; the memory lives on in the result.
  auto storage = input->storage.lock();
  return storage ? c10::Storage(std::move(storage)) : c10::Storage();
}

at::Tensor Region::leave(at::Tensor&& result, c10::DeviceIndex device, bool held) {
  auto* impl = result.unsafeGetTensorImpl();
  if (impl->device_type() != target().type) return std::move(result);
  const auto index = target().indexed ? impl->device().index() : device;
  if (C10_UNLIKELY(!impl->key_set().has(target().dense) || !impl->has_storage())) {
    // Other layouts, such as the gradient of a sparse embedding: as any call's.
    Relabeling call;
    call.devices().set_argument(c10::Device(kFlagos, index));
    return call.wrap(std::move(result));
  }
  const auto adopt = [&](const c10::StorageImpl& twin) {
    if (C10_LIKELY(!page_guard::enabled())) return;
    opened_.emplace_back(twin.data(), page_guard::open(twin.data()));
    page_guard::adopt(twin.data());
  };
  if (C10_LIKELY(!held && impl->unsafe_storage().use_count() == 1)) {
    adopt(*storage_of(*impl));
    AliasImpl::relabel_fresh(*impl, index);
    return std::move(result);
  }
  if (auto own = original_of(impl); own.defined()) return own;
  auto* const original = impl;
  if (held) {
    for (const auto& [other, tensor] : held_) {
      if (other == original) return tensor;
    }
    result = at::Tensor(original->shallow_copy_and_detach(original->version_counter(),
                                                          /*allow_tensor_metadata_change=*/true));
    impl = result.unsafeGetTensorImpl();
  }
  auto* const twin = storage_of(*impl);
  auto storage = known(twin);
  if (!storage) {
    adopt(*twin);
    storage = storage_over(StoragePtr::reclaim_copy(twin), index);
    storage.unsafeGetStorageImpl()->set_resizable(twin->resizable());
    made_.push_back(storage);
  }
  AliasImpl::relabel(*impl, std::move(storage), index);
  if (held) held_.emplace_back(original, result);
  return std::move(result);
}

void Region::write_back() {
  for (const auto& input : inputs_) {
    if (input.written.defined()) write_back(input);
  }
}

void Region::write_back(const Input& input) {
  const auto& alias = *input.written.unsafeGetTensorImpl();
  auto* const twin = storage_of(alias);
  const bool exchanged = twin != input.twin._unsafe_get_target();
  if (const auto storage = input.storage.lock();
      storage && !exchanged &&
      (storage->_mutable_data_ptr_no_checks().get() != twin->_mutable_data_ptr_no_checks().get() ||
       storage->nbytes() != twin->nbytes())) {
    storage->set_data_ptr_noswap(
        data_ptr_over(StoragePtr::reclaim_copy(twin), storage->device().index()));
    storage->set_nbytes(twin->nbytes());
  }
  const auto original = input.original.lock();
  if (!original) return;
  if (C10_UNLIKELY(exchanged)) {
    // `x.data = y`: the tensor has another storage, which a result may have as well.
    auto storage = known(twin);
    if (!storage) {
      storage = storage_over(StoragePtr::reclaim_copy(twin), original->device().index());
      made_.push_back(storage);
    }
    original->set_storage_keep_dtype(std::move(storage));
  }
  if (!original->sizes().equals(alias.sizes()) || !original->strides().equals(alias.strides()) ||
      original->storage_offset() != alias.storage_offset()) {
    original->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
  }
}

}  // namespace torch_fl
