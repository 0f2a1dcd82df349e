// Owns: tensors of the target made from flagos tensors and the way back, for single tensors.
// An alias shares the twin storage and copies the metadata; the caller's tensor is not touched.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "device/target.h"
#include "memory/free_list.h"
#include "memory/twin.h"

namespace torch_fl {

// The key set of the target's tensor for a flagos key set, and back. Autocast has been applied
// above boxing, so an alias takes no part in the target's.
inline constexpr auto kFlagosKeys = c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit) |
                                    c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1);
inline constexpr auto kAutogradKeys = c10::autograd_dispatch_keyset_with_ADInplaceOrView;

inline c10::DispatchKeySet without(c10::DispatchKeySet keys, c10::DispatchKeySet dropped) {
  return c10::DispatchKeySet::from_raw_repr(keys.raw_repr() & ~dropped.raw_repr());
}
inline c10::DispatchKeySet target_keys(c10::DispatchKeySet keys) {
  return without(keys, kFlagosKeys | c10::python_ks) | target().backend_keys;
}
inline c10::DispatchKeySet flagos_keys(c10::DispatchKeySet keys) {
  return without(keys, target().backend_and_autocast_keys) | kFlagosKeys;
}

// Two kinds. A *full* alias counts versions with the caller's counter and may be written. A *light*
// one is only read, by a kernel of PyTorch's own: it is what PyTorch calls an inference tensor (no
// counter, no autograd keys, also in worker threads of the kernel, where autograd is not switched
// off), and it borrows the twin from the caller's tensor for the time of the call. Both savings are
// atomic operations, a good part of what an alias costs.
class AliasImpl final : public c10::TensorImpl {
 public:
  static void* operator new(size_t) { return FreeList<sizeof(AliasImpl)>::take(); }
  static void operator delete(void* memory) noexcept { FreeList<sizeof(AliasImpl)>::give(memory); }

  // Light: `twin` is the one that `source`'s storage holds.
  AliasImpl(c10::StorageImpl* twin, const c10::TensorImpl& source)
      : AliasImpl(StoragePtr::reclaim(twin), source, without(source.key_set(), kAutogradKeys),
                  /*borrows=*/true) {}
  // Full.
  AliasImpl(StoragePtr twin, const c10::TensorImpl& source)
      : AliasImpl(std::move(twin), source, source.key_set(), /*borrows=*/false) {
    version_counter_ = source.version_counter();  // (the setter refuses what detach() of an
  }  // inference tensor gives: a counter, no autograd)
  ~AliasImpl() override { give_back(); }
  void release_resources() override {
    give_back();
    TensorImpl::release_resources();
  }

  // Makes a light alias a full one. `source` is the tensor it was made from.
  void complete(const c10::TensorImpl& source) {
    if (!borrows_) return;
    borrows_ = false;  // whoever holds it beyond the call needs it to hold its memory
    c10::raw::intrusive_ptr::incref(storage_.unsafeGetStorageImpl());
    key_set_ = key_set_ | (source.key_set() & kAutogradKeys);
    version_counter_ = source.version_counter();
  }

  // Makes `result`, a tensor of the target nobody else holds, a flagos tensor over `storage`.
  static void relabel(c10::TensorImpl& result, c10::Storage storage, c10::DeviceIndex device) {
    result.*(&AliasImpl::storage_) = std::move(storage);
    result.*(&AliasImpl::device_opt_) = c10::Device(kFlagos, device);
    auto& keys = result.*(&AliasImpl::key_set_);
    keys = flagos_keys(keys);
  }

  // The same, where nobody else holds `result`'s memory either.
  static void relabel_fresh(c10::TensorImpl& result, c10::DeviceIndex device) {
    auto& storage = result.*(&AliasImpl::storage_);
    auto twin = StoragePtr::reclaim(storage.unsafeReleaseStorageImpl());
    relabel(result, storage_over(std::move(twin), device), device);
  }

  // A view that a kernel made of an alias takes part in autograd as the caller's tensor does, and
  // counts versions with it. (A part of a nested tensor is none.)
  static void restore_autograd(c10::TensorImpl& view, const c10::TensorImpl& source) {
    auto& keys = view.*(&AliasImpl::key_set_);
    keys = keys | without(source.key_set() & kAutogradKeys,
                          c10::DispatchKeySet(c10::DispatchKey::AutogradNestedTensor));
    view.*(&AliasImpl::version_counter_) = source.version_counter();
  }

  // conj and neg are results too: a kernel may leave what it writes lazily conjugated.
  static void copy_lazy_bits(const c10::TensorImpl& from, c10::TensorImpl& to) {
    constexpr auto kBits = c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
                           c10::DispatchKeySet(c10::DispatchKey::Negative);
    auto& keys = to.*(&AliasImpl::key_set_);
    const auto bits = from.key_set() & kBits;
    if (C10_LIKELY((keys & kBits) == bits)) return;  // threads may read the caller's tensor
    keys = (keys - kBits) | bits;
  }

 private:
  // Constructed with an empty key set: TensorImpl then makes no version counter (an allocation).
  AliasImpl(StoragePtr twin, const c10::TensorImpl& source, c10::DispatchKeySet keys, bool borrows)
      : TensorImpl(TensorImpl::VIEW, c10::Storage(std::move(twin)), c10::DispatchKeySet(),
                   source.dtype()),
        borrows_(borrows) {
    try {
      copy_metadata(source);
    } catch (...) {  // no memory; the base would give back what is borrowed
      give_back();
      throw;
    }
    device_opt_ = target().device(source.device().index());
    key_set_ = target_keys(keys);
  }

  // As PyTorch's copy_generic_tensor_metadata(), which goes bit by bit and would be a third of what
  // an alias costs; it is taken where there is more than shape and strides (names, symbolic sizes).
  void copy_metadata(const c10::TensorImpl& source) {
    // Only members of the base are read: there are no pointers to bit-fields.
    const auto& from = static_cast<const AliasImpl&>(source);
    if (C10_UNLIKELY(from.extra_meta_ != nullptr)) {
      copy_generic_tensor_metadata(&source, this);
      return;
    }
    sizes_and_strides_ = from.sizes_and_strides_;
    storage_offset_ = from.storage_offset_;
    numel_ = from.numel_;
    is_contiguous_ = from.is_contiguous_;
    is_channels_last_ = from.is_channels_last_;
    is_channels_last_contiguous_ = from.is_channels_last_contiguous_;
    is_channels_last_3d_ = from.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = from.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = from.is_non_overlapping_and_dense_;
    is_wrapped_number_ = from.is_wrapped_number_;
  }

  void give_back() {
    if (borrows_) storage_.unsafeReleaseStorageImpl();
    borrows_ = false;
  }

  bool borrows_ = false;
};

}  // namespace torch_fl
