// Owns: which rule about devices an operator has.
#pragma once

#include <cstdint>

namespace torch_fl {

enum class DeviceRule : uint8_t {
  kSame,                // every tensor on one device
  kIterator,            // the same, but zero-dimensional CPU tensors may join
  kIndexed,             // index tensors may be on the CPU
  kIndexedWrite,        // index tensors may be anywhere, the values only where the tensor is
  kNumberFromAnywhere,  // the third argument may be a zero-dimensional tensor of any device
  kNone,                // the operator is about several devices, or not PyTorch's
};

DeviceRule device_rule(const char* name, const char* overload);

}  // namespace torch_fl
