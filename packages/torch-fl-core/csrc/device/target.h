// Owns: what a flagos tensor is relabelled onto. One target per process, set once by activation
// and constant afterwards, so that reading it needs no synchronisation.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/DispatchKeySet.h>

namespace torch_fl {

constexpr c10::DeviceType kFlagos = c10::DeviceType::PrivateUse1;

struct Target {
  c10::DeviceType type = c10::DeviceType::CPU;
  c10::BackendComponent backend = c10::BackendComponent::CPUBit;
  c10::DispatchKey dense = c10::DispatchKey::CPU;
  c10::DispatchKey sparse = c10::DispatchKey::SparseCPU;
  c10::DispatchKey sparse_csr = c10::DispatchKey::SparseCsrCPU;
  c10::DispatchKey quantized = c10::DispatchKey::QuantizedCPU;
  c10::DispatchKey nested = c10::DispatchKey::NestedTensorCPU;
  // CPU tensors carry no index: which flagos device they belong to is then the engine's to know.
  bool indexed = false;
  // The target's kernels over lists use a tensor's address and ask nothing of its device's type.
  bool foreach_takes_any_device = false;
  c10::DispatchKeySet dense_keys;
  // The backend's part of a key set, with and without autocast.
  c10::DispatchKeySet backend_keys;
  c10::DispatchKeySet backend_and_autocast_keys;

  c10::Device device(c10::DeviceIndex index) const {
    return indexed ? c10::Device(type, index) : c10::Device(type);
  }
};

// Throws when `type` has no dense dispatch key of its own.
Target make_target(c10::DeviceType type);

inline Target g_target;
inline const Target& target() { return g_target; }

}  // namespace torch_fl
