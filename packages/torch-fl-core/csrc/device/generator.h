// Owns: flagos generators, each a label on one generator of the target.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/jit_type.h>
#include <c10/core/GeneratorImpl.h>

#include <optional>

#include "device/target.h"
#include "export.h"

namespace torch_fl {

// The default generator of a device (-1: the current one); lives as long as the process.
FLAGOS_API const at::Generator& default_generator(c10::DeviceIndex device);

// Whether the default generator of `device` has been seeded or set, in flagos' name, since this was
// last asked.
bool take_restarted(c10::DeviceIndex device);

at::Generator new_generator(c10::DeviceIndex device);

// Throws as CUDA does for a generator of another device type.
void check_generator(const std::optional<at::Generator>& generator);

// The target generator behind a flagos one, or behind the default generator of `device` when none
// is given. Throws as CUDA does for a generator of another device type.
FLAGOS_API at::Generator target_generator(const std::optional<at::Generator>& generator,
                                          c10::DeviceIndex device);

// An argument that means a default generator when none is given.
inline bool is_optional_generator(const c10::Type& type) {
  return type.kind() == c10::TypeKind::OptionalType &&
         type.containedType(0)->kind() == c10::TypeKind::GeneratorType;
}

}  // namespace torch_fl
