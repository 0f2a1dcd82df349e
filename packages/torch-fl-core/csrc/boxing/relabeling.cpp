// Owns: one boxed call, for dense tensors. Other layouts are in layouts.cpp, rules about devices in
// call_devices.cpp, error texts in errors.cpp.
#include "boxing/relabeling.h"

#include <ATen/EmptyTensor.h>

#include <algorithm>

namespace torch_fl {
namespace {

using c10::TensorImpl;

at::Tensor retain(TensorImpl* impl) {
  return at::Tensor(c10::intrusive_ptr<TensorImpl>::reclaim_copy(impl));
}

}  // namespace

C10_ALWAYS_INLINE Relabeling::Noted Relabeling::noted(TensorImpl* impl,
                                                      c10::intrusive_ptr<AliasImpl>&& alias) {
  if (C10_UNLIKELY(page_guard::enabled())) open_pages(alias->unsafe_storage().data());
  auto& entry = entries_.emplace_back();
  entry.original = impl;
  entry.alias = alias.get();
  entry.light = true;
  return {at::Tensor(std::move(alias)), entry};
}

C10_ALWAYS_INLINE at::Tensor Relabeling::alias_dense(TensorImpl* impl, Access access) {
  auto* twin = held_twin(storage_of(*impl));
  if (aliases_ != Aliases::kLight || access != Access::kRead || C10_UNLIKELY(twin == nullptr)) {
    return alias_full(impl, access);
  }
  return noted(impl, c10::make_intrusive<AliasImpl>(twin, *impl)).tensor;
}

at::Tensor Relabeling::alias(const at::Tensor& tensor, Access access) {
  if (C10_UNLIKELY(!tensor.defined())) return tensor;
  auto* impl = tensor.unsafeGetTensorImpl();
  if (C10_UNLIKELY(impl->device_type() != kFlagos)) {
    devices_.note_foreign(*impl, access != Access::kRead);
    // (A result of another device type is nobody's but the kernel's, see wrap_shared.)
    if (impl->device_type() == target().type) pass_through(impl);
    return tensor;
  }
  devices_.note(*impl);
  auto* const end = entries_.begin() + (in_list_ ? compared_ : static_cast<int>(entries_.size()));
  for (auto* entry = entries_.begin(); entry != end; ++entry) {
    if (entry->original == impl) {
      if (access != Access::kRead) note_access(*entry, access);
      return retain(entry->alias);
    }
  }
  const bool dense = impl->key_set().has(c10::DispatchKey::PrivateUse1);
  auto result = C10_LIKELY(dense) ? alias_dense(impl, access) : alias_layout(impl, access);
  if (C10_UNLIKELY(aliases_ == Aliases::kWithGrad) && impl->requires_grad()) {
    result.set_requires_grad(true);
  }
  return result;
}

// Out of line: most calls only read, and every line of code that a call does not run past is one
// that the processor need not fetch.
C10_NOINLINE at::Tensor Relabeling::alias_full(TensorImpl* impl, Access access) {
  auto [tensor, entry] = noted(impl, c10::make_intrusive<AliasImpl>(twin_here(*impl), *impl));
  entry.light = false;
  if (access != Access::kRead) note_access(entry, access);
  return tensor;
}

// The twin of a tensor's storage. One that is borrowed for the call is the same for all tensors over
// the storage: kernels see by it whether they overlap.
StoragePtr Relabeling::twin_here(const TensorImpl& impl) const {
  auto* const storage = storage_of(impl);
  if (C10_LIKELY(held_twin(storage) != nullptr)) return twin_of(storage);
  for (const auto& entry : entries_) {
    const auto& other = entry.original->unsafe_storage();
    if (other.unsafeGetStorageImpl() == storage) {
      return StoragePtr::reclaim_copy(entry.alias->unsafe_storage().unsafeGetStorageImpl());
    }
  }
  return borrowed_twin(storage);
}

void Relabeling::note_access(Entry& entry, Access access) {
  if (entry.light) {
    static_cast<AliasImpl*>(entry.alias)->complete(*entry.original);
    entry.light = false;
  }
  entry.written = true;
  if (access == Access::kWriteUncounted && !entry.uncounted) note_version(entry);
}

void Relabeling::note_version(Entry& entry) {
  const auto& counter = entry.original->version_counter();
  if (counter.enabled()) {
    uncounted_ = entry.uncounted = true;
    entry.version = counter.current_version();
  } else {
    entry.original->bump_version();  // refuses inference tensors outside of inference mode
  }
}

void Relabeling::count(TensorImpl* tensor) {
  auto& entry = entries_.emplace_back();
  entry.original = tensor;
  note_version(entry);
}

void Relabeling::relabel(at::Tensor& result) {
  if (C10_UNLIKELY(!result.defined())) return;
  auto* impl = result.unsafeGetTensorImpl();
  // Nobody else holds the tensor or its memory (there is some): it is new.
  if (C10_LIKELY(impl->device_type() == target().type &&
                 impl->key_set().has_all(target().dense_keys) && result.use_count() == 1 &&
                 impl->unsafe_storage().use_count() == 1 && !devices_.results_elsewhere())) {
    if (C10_UNLIKELY(page_guard::enabled())) open_result(storage_of(*impl));
    AliasImpl::relabel_fresh(*impl, target().indexed ? impl->device().index() : device());
    return;
  }
  result = wrap_shared(std::move(result));
}

at::Tensor Relabeling::wrap(at::Tensor&& result) {
  relabel(result);
  return std::move(result);
}

void Relabeling::pass_through(TensorImpl* impl) {
  if (C10_LIKELY(passed_through_ == nullptr)) {
    passed_through_ = impl;
  } else {
    rare().passed_through.push_back(impl);
  }
}

bool Relabeling::passed_through(const TensorImpl* impl) const {
  if (impl == passed_through_) return true;
  if (rare_ == nullptr) return false;
  const auto& others = rare_->passed_through;
  return std::find(others.begin(), others.end(), impl) != others.end();
}

at::Tensor Relabeling::wrap_shared(at::Tensor&& result) {
  auto* impl = result.unsafeGetTensorImpl();
  for (const auto& entry : entries_) {
    if (entry.alias == impl) return retain(entry.original);
  }
  if (impl->device_type() != target().type) return std::move(result);
  if (passed_through(impl)) return std::move(result);
  if (!impl->key_set().has(target().dense) || !impl->has_storage()) return wrap_layout(impl);
  // Somebody else holds this tensor (an argument of the target's own device, a cached constant):
  // it must not change under them.
  auto& wrapped = rare().wrapped;
  auto* const held = result.use_count() != 1 ? impl : nullptr;
  if (held != nullptr) {
    for (const auto& other : wrapped) {
      if (other.target == held) return retain(other.result);
    }
    result = at::Tensor(held->shallow_copy_and_detach(c10::VariableVersion(0),
                                                      /*allow_tensor_metadata_change=*/true));
    impl = result.unsafeGetTensorImpl();
  }
  auto* storage = storage_of(*impl);
  if (auto* owner = owner_of(storage)) {
    AliasImpl::restore_autograd(*impl, *owner);
    AliasImpl::relabel(*impl, owner->storage(), owner->device().index());
  } else if (!devices_.results_elsewhere()) {
    // Results of one call may share memory with each other.
    for (const auto& other : wrapped) {
      if (other.result->has_storage() && held_twin(storage_of(*other.result)) == storage) {
        AliasImpl::relabel(*impl, other.result->storage(), other.result->device().index());
        return std::move(result);
      }
    }
    if (C10_UNLIKELY(page_guard::enabled() && held == nullptr)) open_result(storage);
    const auto index = target().indexed ? impl->device().index() : device();
    AliasImpl::relabel(*impl, storage_over(StoragePtr::reclaim_copy(storage), index), index);
    wrapped.push_back({held, impl});
  }
  return std::move(result);
}

// The argument whose memory `twin` is.
TensorImpl* Relabeling::owner_of(const c10::StorageImpl* twin) const {
  for (const auto& entry : entries_) {
    if (entry.alias->has_storage() && storage_of(*entry.alias) == twin) return entry.original;
  }
  return nullptr;
}

namespace {

bool storage_holds(const TensorImpl& tensor) {
  const auto needed = tensor.numel() == 0 ? 0
                                          : at::detail::computeStorageNbytes(
                                                tensor.sizes(), tensor.strides(),
                                                tensor.dtype().itemsize(), tensor.storage_offset());
  return needed <= storage_of(tensor)->nbytes();
}

}  // namespace

void Relabeling::write_back(bool failed) {
  for (const auto& entry : entries_) {
    if (!entry.written) continue;
    if (C10_UNLIKELY(!entry.alias->key_set().has_all(target().dense_keys))) {
      write_back_layout(entry);
      continue;
    }
    auto& original = *entry.original;
    auto& alias = *entry.alias;
    auto* storage = storage_of(original);
    auto* twin = storage_of(alias);
    if (C10_UNLIKELY(storage->_mutable_data_ptr_no_checks().get() !=
                         twin->_mutable_data_ptr_no_checks().get() ||
                     storage->nbytes() != twin->nbytes())) {
      if (page_guard::enabled()) open_result(twin);
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
  if (C10_LIKELY(!uncounted_)) return;
  // Views of one tensor share a counter: first see which the kernel left alone, then count each.
  for (auto& entry : entries_) {
    entry.uncounted =
        entry.uncounted && entry.original->version_counter().current_version() == entry.version;
  }
  for (const auto& entry : entries_) {
    if (entry.uncounted) entry.original->bump_version();
  }
}

void Relabeling::open_pages(const void* data) {
  if (data != nullptr) rare().opened.emplace_back(data, page_guard::open(data));
}

void Relabeling::open_result(c10::StorageImpl* twin) {
  open_pages(twin->data());
  page_guard::adopt(twin->data());
}

Relabeling::Rare::~Rare() {
  for (const auto& [data, life] : opened) page_guard::close(data, life);
}

}  // namespace torch_fl
