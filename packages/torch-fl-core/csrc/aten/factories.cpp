// Owns: uninitialised tensors.
#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_efficientzerotensor_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <c10/core/DeviceGuard.h>

#include "aten/own_operators.h"
#include "device/runtime.h"
#include "memory/device_allocator.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

constexpr auto kDense = c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);

// Makes `device` current for the allocation, as the allocator only knows sizes.
class FactoryGuard {
 public:
  FactoryGuard(std::optional<at::Device> device, std::optional<at::Layout> layout,
               std::optional<bool> pin_memory)
      : previous_(runtime().current_device()) {
    TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
    const auto wanted = layout.value_or(at::kStrided);
    TORCH_CHECK(wanted == at::kStrided, "This factory makes strided tensors only, but got layout ",
                wanted);
    if (device && device->index() != -1 && device->index() != previous_) {
      runtime().set_device(checked_device(device->index()));
      changed_ = true;
    }
  }
  ~FactoryGuard() {
    if (changed_) runtime().restore_device(previous_);
  }
  FactoryGuard(const FactoryGuard&) = delete;
  FactoryGuard& operator=(const FactoryGuard&) = delete;

 private:
  c10::DeviceIndex previous_;
  bool changed_ = false;
};

// torch.use_deterministic_algorithms: uninitialised memory is filled with NaN or the largest integer.
at::Tensor defined_if_asked(at::Tensor tensor) {
  const auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() &&
                   context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> format) {
  const FactoryGuard guard(device, layout, pin_memory);
  // Not the symbolic form: that one does not notice an overflowing size.
  return defined_if_asked(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size),
                                                    device_allocator(), kDense,
                                                    c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin_memory) {
  const FactoryGuard guard(device, layout, pin_memory);
  return defined_if_asked(at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), device_allocator(), kDense,
      c10::dtype_or_default(dtype)));
}

// A tensor of zeros without memory, for forward-mode autograd.
at::Tensor efficient_zero(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                          std::optional<at::Layout>, std::optional<at::Device> device,
                          std::optional<bool>) {
  const auto index = device ? checked_device(device->index()) : runtime().current_device();
  at::native::ZeroTensorAllocator allocator(c10::Device(kFlagos, index));
  auto result = at::detail::empty_generic_symint(
      size, &allocator, kDense | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      c10::dtype_or_default(dtype), std::nullopt);
  return result;
}

}  // namespace

void install_factories() {
  using routing::Typed;
  Typed<at::_ops::empty_memory_format>::install_fixed(&empty);
  Typed<at::_ops::empty_strided>::install_fixed(&empty_strided);
  Typed<at::_ops::_efficientzerotensor>::install_fixed(&efficient_zero);
}

}  // namespace torch_fl
