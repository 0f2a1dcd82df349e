// Owns: kernels of the pretend device that make, reinterpret or copy storage.
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/library.h>

#include "on_host.h"

namespace pretend {
namespace {

constexpr auto kDense = c10::DispatchKeySet(c10::DispatchKey::HPU);

DeviceIndex index_of(std::optional<at::Device> device) {
  return device && device->has_index() ? device->index() : current_device();
}

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const DeviceScope scope(index_of(device));
  return at::detail::empty_generic(size, c10::GetAllocator(kType), kDense,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const DeviceScope scope(index_of(device));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(kType), kDense,
                                           c10::dtype_or_default(dtype));
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  const DeviceScope scope(self.device().index());
  return at::native::resize_(self, size, format);
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto size = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return at::native::set_storage_cpu_(self, std::move(source), 0, size);
}

at::Tensor& set_nothing(at::Tensor& self) {
  const DeviceScope scope(self.device().index());
  return at::native::set_storage_cpu_(self, at::empty({0}, self.options()).storage(), 0, 0);
}

// What aten::copy_ asks of a device it has no kernel for. PyTorch has resolved broadcasting.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  const auto host = [](const at::Tensor& tensor) {
    return tensor.device().type() == kType ? borrowed(tensor) : tensor;
  };
  host(destination).copy_(host(self));
  const auto& pinned = self.device().is_cpu() ? self : destination;
  if (non_blocking && pinned.device().is_cpu()) {
    const auto index = (self.device().is_cpu() ? destination : self).device().index();
    record_pinned_use(pinned.storage().data_ptr(),
                      Stream(Stream::UNSAFE, Device(kType, index), current_stream(index)));
  }
  return destination;
}

at::Scalar local_scalar_dense(const at::Tensor& self) { return borrowed(self).item(); }

TORCH_LIBRARY_IMPL(aten, HPU, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  library.impl("set_.source_Storage", &set_storage);
  library.impl("set_.source_Tensor", &at::native::set_tensor_);
  library.impl("set_", &set_nothing);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("_copy_from", &copy_from);
  library.impl("_local_scalar_dense", &local_scalar_dense);
}

}  // namespace
}  // namespace pretend
