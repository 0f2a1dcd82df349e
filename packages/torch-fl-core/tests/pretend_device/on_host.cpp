// Owns: the way of a call of the pretend device to PyTorch's CPU kernels and back.
#include "on_host.h"

#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

namespace pretend {

at::Tensor borrowed(const at::Tensor& tensor) {
  const auto& storage = tensor.storage();
  auto host = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(), static_cast<int64_t>(storage.nbytes()),
          c10::DataPtr(storage.mutable_data(), c10::DeviceType::CPU), c10::GetCPUAllocator(),
          /*resizable=*/true)),
      c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  return host;
}

at::Tensor HostCall::argument(const at::Tensor& tensor, bool written) {
  if (!tensor.defined() || tensor.device().type() != kType) return tensor;
  const Device mine(kType, device());
  TORCH_CHECK(device_ < 0 || tensor.device() == mine,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              mine, " and ", tensor.device(), "!");
  device_ = tensor.device().index();
  for (auto& entry : entries_) {
    if (!entry.original.is_same(tensor)) continue;
    entry.written |= written;
    return entry.host;
  }
  entries_.push_back({tensor, borrowed(tensor), written});
  return entries_.back().host;
}

c10::IValue HostCall::argument(const c10::IValue& value, bool written) {
  if (value.isTensor()) return argument(value.toTensor(), written);
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      tensors.push_back(argument(tensor, written));
    }
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      tensors.push_back(tensor ? std::optional(argument(*tensor, written)) : std::nullopt);
    }
    return tensors;
  }
  if (value.isGenerator()) return engine_of(value.toGenerator());
  return value;
}

void HostCall::finish() {
  for (const auto& entry : entries_) {
    if (!entry.written || entry.host.storage().data() == entry.original.storage().data()) continue;
    entry.original.resize_(entry.host.sizes());
    borrowed(entry.original).copy_(entry.host);
  }
}

at::Tensor HostCall::result(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  for (const auto& entry : entries_) {
    if (entry.host.is_same(tensor)) return entry.original;
  }
  at::Tensor fresh = at::empty_strided(tensor.sizes(), tensor.strides(),
                                       tensor.options().device(Device(kType, device())));
  borrowed(fresh).copy_(tensor);
  return fresh;
}

c10::IValue HostCall::result(const c10::IValue& value) {
  if (value.isTensor()) return result(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> tensors;
  for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(result(tensor));
  return tensors;
}

}  // namespace pretend
