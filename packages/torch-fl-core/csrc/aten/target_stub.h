// Owns: the function that one of PyTorch's tables of kernels has for the target's device type, to be
// called with flagos tensors where it only calls operators.
#pragma once
#include <ATen/native/DispatchStub.h>

#include "device/target.h"

namespace torch_fl {

// Null where the table has none. Not `stub(type, ...)`: what that calls takes a parameter for each
// instruction set that PyTorch was built for, which its headers do not say.
template <class Stub>
typename Stub::FnPtr target_function(Stub& stub) {
  // The table is a class of standard layout with one member, so both have one address.
  const auto& table = reinterpret_cast<const at::native::DispatchStubImpl&>(stub);
  void* function = nullptr;
  switch (target().type) {
    case c10::DeviceType::CUDA:
      function = table.cuda_dispatch_ptr;
      break;
    case c10::DeviceType::HIP:
      function = table.hip_dispatch_ptr;
      break;
    case c10::DeviceType::HPU:
      function = table.hpu_dispatch_ptr;
      break;
    case c10::DeviceType::MTIA:
      function = table.mtia_dispatch_ptr;
      break;
    default:
      break;
  }
  return reinterpret_cast<typename Stub::FnPtr>(function);
}

}  // namespace torch_fl
