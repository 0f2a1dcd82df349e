// Owns: copies, in every direction: flagos to flagos of any index, from and to other devices.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_copy_from_and_resize_ops.h>
#include <ATen/ops/_copy_from_ops.h>
#include <ATen/ops/_to_copy_native.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/resize_ops.h>
#include <torch/library.h>

#include "aten/own_operators.h"
#include "boxing/relabeling.h"
#include "boxing/typed.h"
#include "device/kernel_scope.h"
#include "routing/operator.h"

namespace torch_fl {
namespace {

void copy(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  Relabeling call(Relabeling::Aliases::kLight);
  at::Tensor target_to = call.alias(to, Relabeling::Access::kWrite);
  const at::Tensor target_from = call.alias(from);
  const Relabeling::Settlement settlement(call);
  const KernelScope scope(call.memory_device());
  call.run([&] { at::_ops::copy_::call(target_to, target_from, non_blocking); });
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  copy(self, source, non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& destination, bool non_blocking) {
  copy(destination, self, non_blocking);
  return destination;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& destination) {
  at::_ops::resize_::call(destination, self.sym_sizes(), std::nullopt);
  copy(destination, self, /*non_blocking=*/false);
  return destination;
}

// To another dtype or memory format on the same device, what mixed precision does all the time, is
// one call of the target's: PyTorch's composition would make the result and copy as two of ours.
at::Tensor to_copy(const at::Tensor& self, std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> layout, std::optional<at::Device> device,
                   std::optional<bool> pin_memory, bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  const bool stays = self.key_set().has(c10::DispatchKey::PrivateUse1) &&
                     (!device || *device == self.device()) &&
                     layout.value_or(at::kStrided) == at::kStrided && !pin_memory.value_or(false);
  if (!stays) {
    return at::native::_to_copy(self, dtype, layout, device, pin_memory, non_blocking, format);
  }
  return TypedBoxing<at::_ops::_to_copy>::run(self, dtype, layout, std::nullopt, pin_memory,
                                              non_blocking, format);
}

// A copy resolves lazy conjugation and negation itself; without these fallthroughs PyTorch would
// resolve them by a copy, and so on for ever.
void install_lazy_bit_fallthroughs() {
  for (const auto key : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative}) {
    static auto* libraries = new std::vector<torch::Library>;
    auto& library = libraries->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    library.impl("_copy_from", torch::CppFunction::makeFallthrough());
  }
}

}  // namespace

void install_copies() {
  using routing::Typed;
  Typed<at::_ops::copy_>::install_fixed(&copy_, routing::Route::kBoxing);
  Typed<at::_ops::copy_>::also_for(c10::DispatchKey::QuantizedPrivateUse1);
  Typed<at::_ops::_to_copy>::install_fixed(&to_copy, routing::Route::kBoxing);
  Typed<at::_ops::_copy_from>::install_fixed(&copy_from, routing::Route::kBoxing);
  Typed<at::_ops::_copy_from_and_resize>::install_fixed(&copy_from_and_resize,
                                                        routing::Route::kBoxing);
  install_lazy_bit_fallthroughs();
}

}  // namespace torch_fl
