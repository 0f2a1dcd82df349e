#include "aten/likeness.h"

#include <c10/core/TensorImpl.h>

#include "aten/plain.h"
#include "device/target.h"

namespace torch_fl {
namespace {

at::Tensor without_memory(const at::Tensor& tensor) {
  const c10::Device device = target().device(tensor.device().index());
  c10::Storage storage(c10::Storage::use_byte_size_t(), /*size_bytes=*/0,
                       c10::DataPtr(nullptr, device), /*allocator=*/nullptr, /*resizable=*/false);
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(target().dense), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sym_sizes(), tensor.sym_strides());
  if (tensor.requires_grad()) made.set_requires_grad(true);
  return made;
}

}  // namespace

bool has_likeness(const at::Tensor& tensor) {
  return tensor.device().type() == kFlagos && tensor.layout() == at::kStrided &&
         !tensor.is_nested() && !tensor.key_set().has(c10::DispatchKey::BatchedNestedTensor);
}

at::Tensor Likenesses::of(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  device_ = tensor.device().index();
  return is_plain(tensor) ? call_.alias(tensor) : without_memory(tensor);
}

}  // namespace torch_fl
