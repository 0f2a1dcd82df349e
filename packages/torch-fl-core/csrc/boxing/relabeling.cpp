// Owns: one boxed call, for dense tensors. Other layouts are in layouts.cpp, device rules in
// device_check.cpp, error texts in errors.cpp.
#include "boxing/relabeling.h"

#include <ATen/EmptyTensor.h>

#include "device/runtime.h"
#include "memory/device_allocator.h"

namespace torch_fl {
namespace {

using c10::TensorImpl;

at::Tensor retain(TensorImpl* impl) {
  return at::Tensor(c10::intrusive_ptr<TensorImpl>::reclaim_copy(impl));
}

c10::StorageImpl* storage_of(const TensorImpl* impl) {
  return impl->unsafe_storage().unsafeGetStorageImpl();
}

}  // namespace

at::Tensor Relabeling::alias(const at::Tensor& tensor, Access access) {
  if (C10_UNLIKELY(!tensor.defined())) return tensor;
  auto* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->device_type() != kFlagos)) {
    note_foreign(*impl, access);
    return tensor;
  }
  const auto index = impl->device().index();
  if (C10_LIKELY(index_ < 0)) {
    index_ = index;
  } else if (C10_UNLIKELY(index != index_)) {
    note_second_device(index, *impl);
  }
  if (index == index_) home_ |= static_cast<uint32_t>(impl->dim() > 0) << (argument_ & 31);
  for (auto& entry : entries_) {
    if (entry.original == impl) {
      if (access != Access::kRead) note_access(entry, access);
      return retain(entry.alias);
    }
  }
  const bool dense = impl->key_set().has(c10::DispatchKey::PrivateUse1);
  auto result = C10_LIKELY(dense) ? alias_dense(impl, access) : alias_layout(impl, access);
  if (C10_UNLIKELY(with_grad_) && impl->requires_grad()) result.set_requires_grad(true);
  return result;
}

at::Tensor Relabeling::alias_dense(TensorImpl* impl, Access access) {
  auto alias = c10::make_intrusive<AliasImpl>(twin_of(storage_of(impl)), *impl);
  if (C10_UNLIKELY(page_guard::enabled())) open_pages(alias->unsafe_storage().data());
  // A kernel may go on in worker threads, where autograd is not switched off: the alias must be able
  // to count versions there as the caller's tensor would, and with its counter.
  alias->set_version_counter(impl->version_counter());
  auto& entry = entries_.emplace_back(Entry{.original = impl, .alias = alias.get()});
  if (access != Access::kRead) note_access(entry, access);
  return at::Tensor(std::move(alias));
}

void Relabeling::note_access(Entry& entry, Access access) {
  entry.written = true;
  const auto& counter = entry.original->version_counter();
  if (access == Access::kWriteUncounted && counter.enabled() && !entry.uncounted) {
    entry.uncounted = true;
    entry.version = counter.current_version();
  }
}

at::Tensor Relabeling::wrap(at::Tensor&& result) {
  if (C10_UNLIKELY(!result.defined())) return std::move(result);
  auto* impl = result.unsafeGetTensorImpl();
  for (const auto& entry : entries_) {
    if (entry.alias == impl) return retain(entry.original);
  }
  if (C10_UNLIKELY(impl->device_type() != target().type)) return std::move(result);
  for (const auto* passed : passed_through_) {
    if (C10_UNLIKELY(passed == impl)) return std::move(result);
  }
  if (C10_UNLIKELY(!impl->key_set().has(target().dense) || !impl->has_storage())) {
    return wrap_layout(impl);
  }
  // Somebody else holds this tensor (an argument of the target's own device, a cached constant):
  // it must not change under them.
  const bool shared = result.use_count() != 1;
  if (C10_UNLIKELY(shared)) {
    for (const auto& other : wrapped_) {
      if (other.target == impl) return retain(other.result);
    }
    result = at::Tensor(impl->shallow_copy_and_detach(c10::VariableVersion(0),
                                                      /*allow_tensor_metadata_change=*/true));
    wrapped_.push_back({impl, result.unsafeGetTensorImpl()});
    impl = result.unsafeGetTensorImpl();
  }
  auto* storage = storage_of(impl);
  for (const auto& entry : entries_) {
    if (entry.alias->has_storage() && storage_of(entry.alias) == storage) {
      AliasImpl::relabel(*impl, entry.original->storage(), entry.original->device().index());
      return std::move(result);
    }
  }
  if (C10_UNLIKELY(results_elsewhere_)) return std::move(result);
  // Results of one call may share memory with each other.
  for (const auto& other : wrapped_) {
    if (other.result == impl || !other.result->has_storage()) continue;
    const auto& data = storage_of(other.result)->_mutable_data_ptr_no_checks();
    if (data.get_context() == storage) {
      AliasImpl::relabel(*impl, other.result->storage(), other.result->device().index());
      return std::move(result);
    }
  }
  if (!shared) wrapped_.push_back({impl, impl});
  if (C10_UNLIKELY(page_guard::enabled() && !shared)) {
    open_pages(storage->data());
    page_guard::adopt(storage->data());
  }
  const auto index = target().indexed ? impl->device().index() : device();
  AliasImpl::relabel(*impl, storage_over(StoragePtr::reclaim_copy(storage), index), index);
  return std::move(result);
}

namespace {

bool storage_holds(const TensorImpl& tensor) {
  const auto needed = tensor.numel() == 0 ? 0
                                          : at::detail::computeStorageNbytes(
                                                tensor.sizes(), tensor.strides(),
                                                tensor.dtype().itemsize(), tensor.storage_offset());
  return needed <= storage_of(&tensor)->nbytes();
}

}  // namespace

void Relabeling::write_back(bool failed) {
  for (const auto& entry : entries_) {
    if (!entry.written) continue;
    if (C10_UNLIKELY(!entry.alias->key_set().has(target().dense))) {
      write_back_layout(entry);
      continue;
    }
    auto& original = *entry.original;
    auto& alias = *entry.alias;
    auto* storage = storage_of(&original);
    auto* twin = storage_of(&alias);
    if (C10_UNLIKELY(storage->_mutable_data_ptr_no_checks().get() !=
                         twin->_mutable_data_ptr_no_checks().get() ||
                     storage->nbytes() != twin->nbytes())) {
      if (page_guard::enabled()) {
        open_pages(twin->data());
        page_guard::adopt(twin->data());
      }
      storage->set_data_ptr_noswap(
          data_ptr_over(StoragePtr::reclaim_copy(twin), original.device().index()));
      storage->set_nbytes(twin->nbytes());
    }
    if (C10_UNLIKELY(failed) && !storage_holds(alias)) continue;
    if (!original.sizes().equals(alias.sizes()) || !original.strides().equals(alias.strides()) ||
        original.storage_offset() != alias.storage_offset()) {
      original.set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
    }
    AliasImpl::copy_lazy_bits(alias, original);
  }
  count_versions();
}

void Relabeling::count_versions() {
  // Views of one tensor share a counter: first see which the kernel left alone, then count each.
  for (auto& entry : entries_) {
    entry.uncounted =
        entry.uncounted && entry.original->version_counter().current_version() == entry.version;
  }
  for (const auto& entry : entries_) {
    if (entry.uncounted) entry.original->bump_version();
  }
}

void Relabeling::set_device_argument(c10::Device device) {
  device_argument_given_ = true;
  if (device.type() == kFlagos) {
    device_argument_ = checked_device(device.index());
  } else {
    results_elsewhere_ = true;
  }
}

c10::DeviceIndex Relabeling::device_slow() const {
  if (device_argument_ >= 0) return device_argument_;
  return index_ >= 0 ? index_ : runtime().current_device();
}

void Relabeling::open_pages(const void* data) {
  if (data == nullptr) return;
  if (opened_ == nullptr) opened_ = std::make_unique<decltype(opened_)::element_type>();
  opened_->emplace_back(data, page_guard::open(data));
}

void Relabeling::close_pages() {
  if (opened_ == nullptr) return;
  for (const auto& [data, life] : *opened_) page_guard::close(data, life);
}

}  // namespace torch_fl
