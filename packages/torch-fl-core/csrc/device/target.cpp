// Owns: the dispatch keys that belong to a target's device type.
#include "device/target.h"

#include <c10/core/TensorOptions.h>

namespace torch_fl {

Target make_target(c10::DeviceType type) {
  using c10::DispatchKey;
  const auto dense = c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(type));
  const auto backend = c10::toBackendComponent(dense);
  const auto key = [backend](DispatchKey functionality) {
    return c10::toRuntimePerBackendFunctionalityKey(functionality, backend);
  };
  return Target{
      .type = type,
      .backend = backend,
      .dense = dense,
      .sparse = key(DispatchKey::Sparse),
      .sparse_csr = key(DispatchKey::SparseCsr),
      .quantized = key(DispatchKey::Quantized),
      .nested = key(DispatchKey::NestedTensor),
      .indexed = type != c10::DeviceType::CPU,
      .dense_keys = c10::DispatchKeySet(dense),
      .backend_keys = c10::DispatchKeySet(backend),
      .backend_and_autocast_keys =
          c10::DispatchKeySet(backend) | c10::getAutocastRelatedKeySetFromBackend(backend),
  };
}

}  // namespace torch_fl
