// Owns: counting what runs, for reports. Off, it costs nothing: operators are switched to a
// counting entry when observation starts and back when it stops.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "export.h"

namespace torch_fl::routing {

struct Observed {
  std::string name;  // "aten::add.Tensor"
  std::string route;
  uint64_t calls = 0;
  int64_t device_ns = 0;  // between events around the outermost operators
};

FLAGOS_API void start_observing();
FLAGOS_API void stop_observing();

// Operators called since start_observing(), those still in flight waited for.
FLAGOS_API std::vector<Observed> observations();

}  // namespace torch_fl::routing
