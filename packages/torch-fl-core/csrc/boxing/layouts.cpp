// Owns: relabelling of tensors that are more than one strided storage: sparse COO, the compressed
// sparse layouts, quantized and nested tensors. Member tensors are relabelled one by one.
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>

#include "boxing/relabeling.h"

namespace torch_fl {
namespace {

using at::QTensorImpl;
using at::SparseCsrTensorImpl;
using at::SparseTensorImpl;
using at::native::NestedTensorImpl;
using c10::DispatchKey;

// Shape, coalescedness and members of `from`, to `to`.
void assign(SparseTensorImpl& to, const SparseTensorImpl& from, const at::Tensor& indices,
            const at::Tensor& values) {
  to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  to.set_indices_and_values_unsafe(indices, values);
  to.set_coalesced(from.coalesced());
}

// The same parts in other memory. What says where they are lies on the host and is shared.
c10::intrusive_ptr<NestedTensorImpl> nested_over(c10::Storage storage, c10::DispatchKeySet keys,
                                                 const NestedTensorImpl& like) {
  return c10::make_intrusive<NestedTensorImpl>(std::move(storage), keys, like.dtype(),
                                               like.get_nested_sizes(), like.get_nested_strides(),
                                               like.get_storage_offsets());
}

c10::DeviceIndex member_device(const c10::TensorImpl& impl) { return impl.device().index(); }

}  // namespace

at::Tensor Relabeling::alias_layout(c10::TensorImpl* impl, Access access) {
  const auto keys = impl->key_set();
  // A kernel may put other members in their place: the aliases must live on for write_back().
  const auto member = [&](const at::Tensor& tensor) {
    auto result = alias(tensor, access);
    auto* impl = result.unsafeGetTensorImpl();
    if (auto* held = dynamic_cast<AliasImpl*>(impl)) held->complete(*tensor.unsafeGetTensorImpl());
    return rare().members.emplace_back(std::move(result));
  };
  const auto remember = [&](auto&& result) {
    auto& entry = entries_.emplace_back();
    entry.original = impl;
    entry.alias = result.get();
    if (access != Access::kRead) note_access(entry, access);
    return at::Tensor(std::forward<decltype(result)>(result));
  };
  if (keys.has(DispatchKey::SparsePrivateUse1)) {
    const auto& sparse = *static_cast<SparseTensorImpl*>(impl);
    // A fresh sparse tensor makes its members on the current device.
    const c10::DeviceGuard guard(target().device(member_device(*impl)));
    auto result = c10::make_intrusive<SparseTensorImpl>(target_keys(keys), impl->dtype());
    assign(*result, sparse, member(sparse.indices()), member(sparse.values()));
    return remember(std::move(result));
  }
  if (keys.has(DispatchKey::SparseCsrPrivateUse1)) {
    const auto& sparse = *static_cast<SparseCsrTensorImpl*>(impl);
    auto result = c10::make_intrusive<SparseCsrTensorImpl>(
        target_keys(keys), target().device(member_device(*impl)), sparse.layout(), impl->dtype());
    result->set_member_tensors(member(sparse.compressed_indices()), member(sparse.plain_indices()),
                               member(sparse.values()), sparse.sizes());
    return remember(std::move(result));
  }
  if (keys.has(DispatchKey::QuantizedPrivateUse1)) {
    auto& quantized = *static_cast<QTensorImpl*>(impl);
    auto twin = twin_here(*impl);
    if (C10_UNLIKELY(page_guard::enabled())) {
      open_pages(twin->data());
      open_parameters(quantized.quantizer());
    }
    auto result = c10::make_intrusive<QTensorImpl>(c10::Storage(std::move(twin)), target_keys(keys),
                                                   impl->dtype(), quantized.quantizer());
    result->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    return remember(std::move(result));
  }
  if (keys.has(DispatchKey::NestedTensorPrivateUse1)) {
    auto twin = twin_here(*impl);
    if (C10_UNLIKELY(page_guard::enabled())) open_pages(twin->data());
    return remember(nested_over(c10::Storage(std::move(twin)), target_keys(keys),
                                *static_cast<NestedTensorImpl*>(impl)));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "flagos does not support tensors of layout ", impl->layout(),
                              " here. Use a strided tensor.");
}

// A quantizer per channel holds tensors of its own, in the target's view.
void Relabeling::open_parameters(const at::QuantizerPtr& quantizer) {
  const auto* per_channel = dynamic_cast<const at::PerChannelAffineQuantizer*>(quantizer.get());
  if (per_channel == nullptr) return;
  for (const at::Tensor& tensor : {per_channel->scales(), per_channel->zero_points()}) {
    open_pages(tensor.unsafeGetTensorImpl()->unsafe_storage().data());
  }
}

// Results share members with each other and with their arguments, so a member is never unique.
at::Tensor Relabeling::wrap_member(const at::Tensor& member) {
  return wrap(at::Tensor(member.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true)));
}

at::Tensor Relabeling::wrap_layout(c10::TensorImpl* impl) {
  const auto keys = impl->key_set();
  if (devices_.results_elsewhere())
    return at::Tensor(c10::intrusive_ptr<c10::TensorImpl>::reclaim_copy(impl));
  if (keys.has(target().sparse)) {
    const auto& sparse = *static_cast<SparseTensorImpl*>(impl);
    const c10::DeviceGuard guard(c10::Device(kFlagos, device()));
    auto result = c10::make_intrusive<SparseTensorImpl>(flagos_keys(keys), impl->dtype());
    assign(*result, sparse, wrap_member(sparse.indices()), wrap_member(sparse.values()));
    return at::Tensor(std::move(result));
  }
  if (keys.has(target().sparse_csr)) {
    const auto& sparse = *static_cast<SparseCsrTensorImpl*>(impl);
    auto result = c10::make_intrusive<SparseCsrTensorImpl>(
        flagos_keys(keys), c10::Device(kFlagos, device()), sparse.layout(), impl->dtype());
    result->set_member_tensors(wrap_member(sparse.compressed_indices()),
                               wrap_member(sparse.plain_indices()), wrap_member(sparse.values()),
                               sparse.sizes());
    return at::Tensor(std::move(result));
  }
  if (keys.has(target().quantized) && impl->has_storage()) {
    auto& quantized = *static_cast<QTensorImpl*>(impl);
    auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto* owner = owner_of(storage);
    if (owner == nullptr && page_guard::enabled()) open_result(storage);
    auto result = c10::make_intrusive<QTensorImpl>(
        owner != nullptr ? c10::Storage(owner->storage())
                         : storage_over(StoragePtr::reclaim_copy(storage), device()),
        flagos_keys(keys), impl->dtype(), quantized.quantizer());
    result->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
    return at::Tensor(std::move(result));
  }
  if (keys.has(target().nested) && impl->has_storage()) {
    auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    const auto* owner = owner_of(storage);
    if (owner == nullptr && page_guard::enabled()) open_result(storage);
    return at::Tensor(nested_over(owner != nullptr
                                      ? c10::Storage(owner->storage())
                                      : storage_over(StoragePtr::reclaim_copy(storage), device()),
                                  flagos_keys(keys), *static_cast<NestedTensorImpl*>(impl)));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "flagos does not support tensors of layout ", impl->layout(),
      ", which this operator gives. Move the input to the CPU first, or use the strided layout.");
}

void Relabeling::write_back_layout(const Entry& entry) {
  const auto keys = entry.alias->key_set();
  if (keys.has(target().sparse)) {
    const auto& from = *static_cast<SparseTensorImpl*>(entry.alias);
    assign(*static_cast<SparseTensorImpl*>(entry.original), from, wrap_member(from.indices()),
           wrap_member(from.values()));
  } else if (keys.has(target().sparse_csr)) {
    const auto& from = *static_cast<SparseCsrTensorImpl*>(entry.alias);
    static_cast<SparseCsrTensorImpl*>(entry.original)
        ->set_member_tensors(wrap_member(from.compressed_indices()),
                             wrap_member(from.plain_indices()), wrap_member(from.values()),
                             from.sizes());
  } else if (keys.has(target().quantized)) {
    entry.original->set_sizes_and_strides(entry.alias->sizes(), entry.alias->strides(),
                                          entry.alias->storage_offset());
    static_cast<QTensorImpl*>(entry.original)
        ->set_quantizer_(static_cast<QTensorImpl*>(entry.alias)->quantizer());
  }
}

}  // namespace torch_fl
