// Owns: tensors of the target made from flagos tensors and the way back, for single tensors.
// An alias shares the twin storage and copies the metadata; the caller's tensor is not touched.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>

#include "device/target.h"
#include "memory/twin.h"

namespace torch_fl {

// The key set of the target's tensor for a flagos key set, and back. Autocast has been applied
// above boxing, so an alias takes no part in the target's.
inline constexpr auto kFlagosKeys = c10::DispatchKeySet(c10::BackendComponent::PrivateUse1Bit) |
                                    c10::DispatchKeySet(c10::DispatchKey::AutocastPrivateUse1);

inline c10::DispatchKeySet without(c10::DispatchKeySet keys, c10::DispatchKeySet dropped) {
  return c10::DispatchKeySet::from_raw_repr(keys.raw_repr() & ~dropped.raw_repr());
}
inline c10::DispatchKeySet target_keys(c10::DispatchKeySet keys) {
  return without(keys, kFlagosKeys | c10::python_ks) | target().backend_keys;
}
inline c10::DispatchKeySet flagos_keys(c10::DispatchKeySet keys) {
  return without(keys, target().backend_and_autocast_keys) | kFlagosKeys;
}

class AliasImpl final : public c10::TensorImpl {
 public:
  // Every boxed call makes and drops a few: their memory is kept, per thread.
  static void* operator new(size_t size);
  static void operator delete(void* memory) noexcept;

  // Constructed with an empty key set: TensorImpl then makes no version counter (an allocation).
  AliasImpl(StoragePtr twin, const c10::TensorImpl& source)
      : TensorImpl(TensorImpl::VIEW, c10::Storage(std::move(twin)), c10::DispatchKeySet(),
                   source.dtype()) {
    copy_generic_tensor_metadata(&source, this);
    device_opt_ = target().device(source.device().index());
    key_set_ = target_keys(source.key_set());
  }

  // Makes `result`, a tensor of the target nobody else holds, a flagos tensor over `storage`.
  static void relabel(c10::TensorImpl& result, c10::Storage storage, c10::DeviceIndex device) {
    result.*(&AliasImpl::storage_) = std::move(storage);
    result.*(&AliasImpl::device_opt_) = c10::Device(kFlagos, device);
    auto& keys = result.*(&AliasImpl::key_set_);
    keys = flagos_keys(keys);
  }

  // conj and neg are results too: a kernel may leave what it writes lazily conjugated.
  static void copy_lazy_bits(const c10::TensorImpl& from, c10::TensorImpl& to) {
    constexpr auto kBits = c10::DispatchKeySet(c10::DispatchKey::Conjugate) |
                           c10::DispatchKeySet(c10::DispatchKey::Negative);
    auto& keys = to.*(&AliasImpl::key_set_);
    keys = (keys - kBits) | (from.key_set() & kBits);
  }
};

}  // namespace torch_fl
