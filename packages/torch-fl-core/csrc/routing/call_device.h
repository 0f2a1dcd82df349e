// Owns: the flagos device of a call: that of its first flagos tensor, in the order of the schema.
#pragma once
#include <c10/core/Device.h>

#include "device/target.h"
#include "routing/call_arguments.h"

namespace torch_fl::routing {

inline std::optional<c10::DeviceIndex> flagos_index(const at::Tensor& tensor) {
  if (tensor.device().type() != kFlagos) return std::nullopt;
  return tensor.device().index();
}

// -1 if no tensor says: the current device.
template <class... Args>
c10::DeviceIndex call_device(const Args&... args) {
  FirstTensor<flagos_index> first;
  (first.see(args), ...);
  return first.found().value_or(c10::DeviceIndex{-1});
}

// The same for a call on a stack, of these arguments.
inline c10::DeviceIndex call_device(c10::ArrayRef<c10::IValue> arguments) {
  FirstTensor<flagos_index> first;
  for (const auto& argument : arguments) first.see(argument);
  return first.found().value_or(c10::DeviceIndex{-1});
}

}  // namespace torch_fl::routing
