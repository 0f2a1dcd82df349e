// Owns: counting and logging what runs. Off, it costs nothing: operators are switched to an asking
// entry when watching starts and back when it stops.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

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
struct Fallback {
  std::string name;
  uint64_t calls = 0;
  uint64_t bytes_moved = 0;
};

struct Operator;

// The row of an operator that has no entry of its own, since it is another library's and nobody
// routed it: what runs it says so itself.
Operator& bystander(const c10::OperatorHandle& handle, c10::DispatchKey key);

FLAGOS_API void start_counting();
FLAGOS_API void stop_counting();
// FLAGOS_LOG_DISPATCH: a line on standard error for each call.
FLAGOS_API void set_logging(bool on);
// FLAGOS_BREADCRUMBS: errors of the device name the operators that were called last.
FLAGOS_API void set_breadcrumbs(bool on);

// Operators called while counted, those still in flight waited for. Counts only ever grow.
FLAGOS_API std::vector<Observed> observations();
// Calls of the cpu route since activation, counted always.
FLAGOS_API std::vector<Fallback> fallbacks();

}  // namespace torch_fl::routing
