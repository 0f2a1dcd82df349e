// Owns: operators about a tensor's storage: resize_, set_, record_stream, and which tensors may
// take each other's place.
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_has_compatible_shallow_copy_type_ops.h>
#include <ATen/ops/record_stream_ops.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/set_ops.h>

#include "aten/own_operators.h"
#include "boxing/relabeling.h"
#include "device/kernel_scope.h"
#include "memory/device_allocator.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

const at::Tensor& resize_(const at::Tensor& self, c10::SymIntArrayRef size,
                          std::optional<at::MemoryFormat> format) {
  Relabeling call;
  const at::Tensor alias = call.alias(self, Relabeling::Access::kWrite);
  const KernelScope scope(call.device());
  call.run([&] {
    at::_ops::resize_::call(alias, size, format);
    call.write_back();
  });
  return self;  // NOLINT(bugprone-return-const-ref-from-parameter): the operator's schema
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the operator's schema
at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, c10::SymInt offset,
                               c10::SymIntArrayRef sym_size, c10::SymIntArrayRef sym_stride) {
  const auto size = C10_AS_INTARRAYREF_SLOW(sym_size);
  auto stride = C10_AS_INTARRAYREF_SLOW(sym_stride);
  const auto start = offset.guard_int(__FILE__, __LINE__);
  at::native::checkSetStorage(self, std::move(source), start, size, stride);
  std::vector<int64_t> contiguous;
  if (stride.data() == nullptr) {
    contiguous.assign(size.size(), 1);
    for (size_t dim = size.size(); dim-- > 1;) {
      contiguous[dim - 1] = contiguous[dim] * std::max<int64_t>(size[dim], 1);
    }
    stride = contiguous;
  }
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, start);
  if (self.numel() > 0) {
    const auto needed =
        at::detail::computeStorageNbytes(size, stride, self.dtype().itemsize(), start);
    if (needed > self.storage().nbytes()) resize_storage(self.storage(), needed);
  }
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const c10::SymInt size(static_cast<int64_t>(source.nbytes() / self.dtype().itemsize()));
  return set_storage_offset(self, std::move(source), 0, c10::SymIntArrayRef(&size, 1), {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_offset(self, source.storage(), source.sym_storage_offset(), source.sym_sizes(),
                            source.sym_strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  const c10::SymInt size(0);
  return set_storage_offset(self,
                            storage_over(new_twin(0, self.device().index()), self.device().index()),
                            0, c10::SymIntArrayRef(&size, 1), {});
}

void record_stream(at::Tensor& self, at::Stream stream) {
  device_allocator()->recordStream(self.storage().data_ptr(), stream);
}

// A dense flagos tensor and a dense tensor of another device may take each other's place
// (`param.data = ...`, Module.to), as CPU and CUDA tensors may. PyTorch's own answer leaves
// PrivateUse1 out.
// Compressed sparse tensors may not: PyTorch says they may, but takes over neither indices nor values.
bool compatible(const at::Tensor& self, const at::Tensor& from) {
  const auto dense = [](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
           tensor.has_storage();
  };
  const auto compressed = [](const at::Tensor& tensor) {
    return tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::SparseCsr));
  };
  if (compressed(self) || compressed(from)) return false;
  return (dense(self) && dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

void install_storage_operators() {
  using routing::Typed;
  Typed<at::_ops::resize_>::install_fixed(&resize_, routing::Route::kBoxing);
  Typed<at::_ops::set__source_Storage_storage_offset>::install_fixed(&set_storage_offset);
  Typed<at::_ops::set__source_Storage>::install_fixed(&set_storage);
  Typed<at::_ops::set__source_Tensor>::install_fixed(&set_tensor);
  Typed<at::_ops::set_>::install_fixed(&set_nothing);
  constexpr auto kQuantized = c10::DispatchKey::QuantizedPrivateUse1;
  Typed<at::_ops::set__source_Storage_storage_offset>::also_for(kQuantized);
  Typed<at::_ops::set__source_Storage>::also_for(kQuantized);
  Typed<at::_ops::set__source_Tensor>::also_for(kQuantized);
  Typed<at::_ops::set_>::also_for(kQuantized);
  Typed<at::_ops::record_stream>::install_fixed(&record_stream);
  Typed<at::_ops::_has_compatible_shallow_copy_type>::install_fixed(&compatible);
  Typed<at::_ops::_has_compatible_shallow_copy_type>::also_for(
      c10::DispatchKey::SparseCsrPrivateUse1);
}

}  // namespace torch_fl
